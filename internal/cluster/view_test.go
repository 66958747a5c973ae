package cluster

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// noFleet shows nobody anything.
type noFleet struct{}

func (noFleet) PutRemote(*ferrule.Device, *ferrule.Manifest, ferrule.Handler) {}
func (noFleet) RemoveRemote(string)                                           {}

// bareView is a view of node a, with the registry told by the test.
func bareView() *view {
	cfg := DefaultConfig()
	cfg.Node = "a"
	return newView(cfg, noFleet{}, newKinds(names{}, plainOverlays{}, slog.New(slog.DiscardHandler)), nil)
}

func robotAt(node string, state ferrule.State, epoch uint64) *ferrule.Device {
	return &ferrule.Device{
		ID: "robot", Address: "usb:1", Transport: "serial", Protocol: "mcpu", Node: node, Epoch: epoch, Kind: "k",
		State: state, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}
}

// write has the registry take what the view proposes, and returns it.
func (v *view) write(t *testing.T, revision uint64) *record {
	t.Helper()
	all := v.propose(10)
	if len(all) == 0 {
		return nil
	}
	if len(all) != 1 {
		t.Fatalf("%d writes are proposed", len(all))
	}
	r := &record{}
	if err := json.Unmarshal(all[0].data, r); err != nil {
		t.Fatal(err)
	}
	v.landed(all[0], outcome{revision: revision})
	return r
}

// reread has the registry tell all anew.
func (v *view) reread(dev *ferrule.Device, revision uint64) {
	v.begin()
	if dev != nil {
		v.update("robot", entry{dev, revision})
	}
	v.complete()
}

// TestRolledBack: a registry that has forgotten what it had taken is told anew.
func TestRolledBack(t *testing.T) {
	t.Run("what was written", func(t *testing.T) {
		v := bareView()
		v.reread(nil, 0)
		v.settle(&intake{changes: []change{{id: "robot", device: robotAt("a", ferrule.StateOnline, 0)}}})
		if r := v.write(t, 1); r == nil || r.Epoch != 1 {
			t.Fatalf("wrote %+v", r)
		}
		v.settle(&intake{changes: []change{{id: "robot", device: robotAt("a", ferrule.StateOffline, 0)}}})
		if r := v.write(t, 2); r == nil || r.State != ferrule.StateOffline {
			t.Fatalf("wrote %+v", r)
		}
		v.reread(robotAt("a", ferrule.StateOffline, 1), 2)
		if r := v.write(t, 3); r != nil {
			t.Errorf("wrote %+v, which stands there", r)
		}
		v.reread(robotAt("a", ferrule.StateOnline, 1), 1)
		if r := v.write(t, 2); r == nil || r.State != ferrule.StateOffline {
			t.Errorf("wrote %+v over what is no longer so", r)
		}
	})
	t.Run("who holds it", func(t *testing.T) {
		v := bareView()
		v.reread(robotAt("b", ferrule.StateOnline, 5), 1)
		v.settle(&intake{changes: []change{{id: "robot", device: robotAt("a", ferrule.StateOnline, 0)}}})
		if r := v.write(t, 2); r == nil || r.Epoch != 6 || r.Node != "a" {
			t.Fatalf("wrote %+v", r)
		}
		v.reread(robotAt("b", ferrule.StateOnline, 5), 1)
		if r := v.write(t, 2); r == nil || r.Epoch != 6 || r.Node != "a" {
			t.Errorf("wrote %+v, and nobody can reach it", r)
		}
		v.update("robot", entry{robotAt("b", ferrule.StateOnline, 8), 9})
		if r := v.write(t, 10); r != nil {
			t.Errorf("wrote %+v, and it was taken", r)
		}
	})
}

// TestClaimFails: a claim that does not get there is made again, and however often it
// was, another node's that did get there counts.
func TestClaimFails(t *testing.T) {
	v := bareView()
	v.reread(robotAt("b", ferrule.StateOffline, 5), 1)
	v.settle(&intake{changes: []change{{id: "robot", device: robotAt("a", ferrule.StateOnline, 0)}}})
	for range 10 {
		all := v.propose(10)
		if len(all) != 1 || all[0].device.Epoch != 6 {
			t.Fatalf("proposed %+v", all)
		}
		v.landed(all[0], outcome{err: context.DeadlineExceeded})
	}
	v.update("robot", entry{robotAt("c", ferrule.StateOnline, 6), 2})
	if r := v.write(t, 3); r != nil {
		t.Errorf("wrote %+v, and it was taken", r)
	}
	if _, ok := v.holds("robot", 6); ok {
		t.Error("it is held by two")
	}
}

// TestKnownMeanwhile: while the registry tells all anew, what it told before counts.
func TestKnownMeanwhile(t *testing.T) {
	v := bareView()
	v.reread(robotAt("b", ferrule.StateOnline, 5), 1)
	v.begin()
	if dev, ok := v.known("robot"); !ok || dev.Node != "b" {
		t.Errorf("while all is told anew: %+v, %t", dev, ok)
	}
	v.begin() // the first time did not come to its end
	if _, ok := v.known("robot"); !ok {
		t.Error("the second time it is not known")
	}
	v.complete()
	if _, ok := v.known("robot"); ok {
		t.Error("it is known, and it is not in the registry any more")
	}
}

// staleRegistry is one whose followers are behind: it refuses writes, and does not tell
// what stands there instead.
type staleRegistry struct{ puts atomic.Int64 }

func (*staleRegistry) get(context.Context, string) (entry, error) { return entry{}, nil }
func (r *staleRegistry) put(_ context.Context, writes []write) []outcome {
	r.puts.Add(1)
	return slices.Repeat([]outcome{{err: errStale}}, len(writes))
}
func (*staleRegistry) watch(context.Context, func(string, []byte, uint64), func()) error { return nil }

// TestStale: a record that was written by somebody else, and cannot be read yet, is not
// tried again and again without a pause.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Cluster{intake: &intake{}, view: bareView(), work: make(chan struct{}, 1), published: map[ferrule.Kind]bool{"k": true}}
		b.view.reread(nil, 0)
		b.view.settle(&intake{changes: []change{{id: "robot", device: robotAt("a", ferrule.StateOnline, 0)}}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := &staleRegistry{}
		b.keepOwn(ctx, &engine{}, &home{registry: r})
		if n := r.puts.Load(); n < 10 || n > 100*writers {
			t.Errorf("it was tried %d times in ten seconds", n)
		}
	})
}
