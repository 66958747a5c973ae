package registry

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// noFleet ignores devices of other nodes.
type noFleet struct{}

func (noFleet) PutRemote(*ferrule.Device, *ferrule.Manifest, ferrule.Handler) {}
func (noFleet) RemoveRemote(string)                                           {}

// noOverlays leaves manifests as they are.
type noOverlays struct{}

func (noOverlays) Apply(_ string, _ ferrule.Kind, _ string, m *ferrule.Manifest) *ferrule.Manifest {
	return m
}
func (noOverlays) MatchesDevice(string) bool { return false }

// testRegistry returns the registry of node a. Its records come from the test.
func testRegistry() *Registry {
	cfg := engine.DefaultConfig()
	cfg.Node = "a"
	r, err := New(Options{
		Config: cfg, Secret: []byte("a secret that all nodes share"), Fleet: noFleet{}, Overlays: noOverlays{}, Event: func(ferrule.Event) {},
		LeaseProblem: func(string) {}, WriteProblem: func(string) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	return r
}

func testView() *view { return testRegistry().view }

func robotAt(node string, state ferrule.State, epoch uint64) *ferrule.Device {
	return &ferrule.Device{
		ID: "robot", Address: "usb:1", Transport: "serial", Protocol: "mcpu", Node: node, Epoch: epoch, Kind: "k",
		State: state, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}
}

// ownRobot returns the change that makes the robot an own device.
func ownRobot(state ferrule.State) *intake {
	return &intake{changes: []change{{id: "robot", device: robotAt("a", state, 0)}}}
}

// write accepts the write that the view plans, if any, and returns its record.
func (v *view) write(t *testing.T, revision uint64) *record {
	t.Helper()
	all := v.plans(10)
	if len(all) == 0 {
		return nil
	}
	if len(all) != 1 {
		t.Fatalf("%d writes are planned, want 1", len(all))
	}
	r := &record{}
	if err := json.Unmarshal(all[0].data, r); err != nil {
		t.Fatal(err)
	}
	v.written(all[0], outcome{revision: revision})
	return r
}

// reread reports all records again: the robot, or none.
func (v *view) reread(dev *ferrule.Device, revision uint64) {
	v.begin()
	if dev != nil {
		v.update("robot", entry{device: dev, revision: revision})
	}
	v.complete()
}

// TestRolledBack checks that records are written again to a registry that lost them.
func TestRolledBack(t *testing.T) {
	t.Run("record", func(t *testing.T) {
		v := testView()
		v.reread(nil, 0)
		v.settle(ownRobot(ferrule.StateOnline))
		if r := v.write(t, 1); r == nil || r.Epoch != 1 {
			t.Fatalf("wrote %+v, want epoch 1", r)
		}
		v.settle(ownRobot(ferrule.StateOffline))
		if r := v.write(t, 2); r == nil || r.State != ferrule.StateOffline {
			t.Fatalf("wrote %+v, want offline", r)
		}
		v.reread(robotAt("a", ferrule.StateOffline, 1), 2)
		if r := v.write(t, 3); r != nil {
			t.Errorf("wrote %+v, which is unchanged", r)
		}
		v.reread(robotAt("a", ferrule.StateOnline, 1), 1)
		if r := v.write(t, 2); r == nil || r.State != ferrule.StateOffline {
			t.Errorf("wrote %+v, want offline again", r)
		}
	})
	t.Run("holder", func(t *testing.T) {
		v := testView()
		v.reread(robotAt("b", ferrule.StateOnline, 5), 1)
		v.settle(ownRobot(ferrule.StateOnline))
		if r := v.write(t, 2); r == nil || r.Epoch != 6 || r.Node != "a" {
			t.Fatalf("wrote %+v, want epoch 6 at a", r)
		}
		v.reread(robotAt("b", ferrule.StateOnline, 5), 1)
		if r := v.write(t, 2); r == nil || r.Epoch != 6 || r.Node != "a" {
			t.Errorf("wrote %+v, want epoch 6 at a again", r)
		}
		v.update("robot", entry{device: robotAt("b", ferrule.StateOnline, 8), revision: 9})
		if r := v.write(t, 10); r != nil {
			t.Errorf("wrote %+v, although b took it", r)
		}
	})
}

// TestClaimFails checks that a failed claim is repeated with the same epoch, and that the
// successful claim of another node wins.
func TestClaimFails(t *testing.T) {
	v := testView()
	v.reread(robotAt("b", ferrule.StateOffline, 5), 1)
	v.settle(ownRobot(ferrule.StateOnline))
	for range 10 {
		all := v.plans(10)
		if len(all) != 1 || all[0].device.Epoch != 6 {
			t.Fatalf("planned %+v, want epoch 6", all)
		}
		v.written(all[0], outcome{err: context.DeadlineExceeded})
	}
	v.update("robot", entry{device: robotAt("c", ferrule.StateOnline, 6), revision: 2})
	if r := v.write(t, 3); r != nil {
		t.Errorf("wrote %+v, although c took it", r)
	}
	if _, ok := v.held("robot", 6); ok {
		t.Error("two nodes hold it")
	}
}

// TestKnownWhileRereading checks that earlier records count while all are read again.
func TestKnownWhileRereading(t *testing.T) {
	v := testView()
	v.reread(robotAt("b", ferrule.StateOnline, 5), 1)
	v.begin()
	if dev, ok := v.known("robot"); !ok || dev.Node != "b" {
		t.Errorf("while rereading: %+v, %t", dev, ok)
	}
	v.begin() // the first attempt did not complete
	if _, ok := v.known("robot"); !ok {
		t.Error("unknown in the second attempt")
	}
	v.complete()
	if _, ok := v.known("robot"); ok {
		t.Error("known, although its record is gone")
	}
}

// staleStore rejects writes, and does not return the newer record.
type staleStore struct{ puts atomic.Int64 }

func (*staleStore) get(context.Context, string) (entry, error) { return entry{}, nil }
func (s *staleStore) put(_ context.Context, writes []write) []outcome {
	s.puts.Add(1)
	return slices.Repeat([]outcome{{err: engine.ErrStale}}, len(writes))
}
func (*staleStore) watch(context.Context, func(string, []byte, uint64), func()) error { return nil }

// TestStale checks that there is a pause before a rejected record is written again.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRegistry()
		r.view.reread(nil, 0)
		r.view.settle(ownRobot(ferrule.StateOnline))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		store := &staleStore{}
		s := &Session{r: r, devices: store, published: map[ferrule.Kind]bool{"k": true}}
		s.keepOwn(ctx)
		if n := store.puts.Load(); n < 10 || n > 100*writers {
			t.Errorf("tried %d times in ten seconds", n)
		}
	})
}

// TestTalkative checks that the intake limits events of devices, and accepts more once
// they are taken.
func TestTalkative(t *testing.T) {
	i := &intake{wake: func() {}}
	accepted := 0
	for range 3 * maxSaid {
		if i.say(ferrule.Event{Type: ferrule.Notified, Device: "toy"}) {
			accepted++
		}
	}
	if accepted != maxSaid || len(i.changes) != maxSaid {
		t.Errorf("%d accepted, %d waiting, want %d", accepted, len(i.changes), maxSaid)
	}
	if len(i.take()) != maxSaid || !i.say(ferrule.Event{}) {
		t.Error("no event is accepted after the others were taken")
	}
}
