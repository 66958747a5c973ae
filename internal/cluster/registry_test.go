package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/registry"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestRecords checks that other nodes see the changes of a device.
func TestRecords(t *testing.T) {
	a, b, _ := pair(t)
	b.putDevice("robot", "arm", ferrule.StateOffline)
	wait.For(t, "offline", func() bool { return a.seen("robot").State == ferrule.StateOffline })
	if dev := a.seen("robot"); dev.Epoch != 1 || dev.Node != "b" {
		t.Errorf("got %+v", dev)
	}
	b.putDevice("robot", "hand", ferrule.StateOnline) // as another Kind
	wait.For(t, "another Kind", func() bool { return a.seen("robot").Model == "hand" })
	if dev := a.seen("robot"); dev.Epoch != 1 {
		t.Errorf("its epoch changed: %+v", dev)
	}
	b.cluster.Remove("robot")
	wait.For(t, "removed", func() bool { return a.seen("robot") == nil })
	b.putDevice("robot", "arm", ferrule.StateOnline) // over the deletion marker
	wait.For(t, "there again", func() bool { return a.seen("robot") != nil })
}

// TestPendingManifest checks that the manifest of a pending device is not published
// before it is adopted: other devices of its Kind would get it.
func TestPendingManifest(t *testing.T) {
	a, b, cfg := pair(t)
	dev := *b.putDevice("toy", "bear", ferrule.StateOffline)
	b.cluster.Remove("toy")
	dev.ID, dev.Address, dev.Version = "stray", "mac:1", "2"
	dev.Kind, dev.State, dev.Trust = "not published", ferrule.StateOnline, ferrule.TrustPending
	b.cluster.Put(&dev, nil)
	wait.For(t, "a sees it", func() bool { return a.seen("stray") != nil })
	a.mu.Lock()
	m := a.remote["stray"]
	a.mu.Unlock()
	if got := a.seen("stray"); m != nil || got.Trust != ferrule.TrustPending || got.Model != "bear" || got.Version != "2" {
		t.Errorf("got %+v, %+v", got, m)
	}
	adopted := b.putDevice("robot", "arm", ferrule.StateOnline)
	stray := *adopted // of the same Kind
	stray.ID, stray.Address, stray.Trust = "stray", "mac:1", ferrule.TrustPending
	b.cluster.Put(&stray, nil)
	wait.For(t, "a has its Kind", func() bool { return a.seen("stray").Kind == adopted.Kind })
	kinds := openBucket(t, cfg, engine.KindsBucket)
	keys, err := kinds.Keys(t.Context())
	if err != nil || slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "not") }) {
		t.Errorf("%q, %v", keys, err)
	}
	stray.Trust = ferrule.TrustAdopted
	b.cluster.Put(&stray, nil)
	wait.For(t, "a has its manifest", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.remote["stray"] != nil && a.elsewhere["stray"].Trust == ferrule.TrustAdopted
	})
}

// TestRegistryLost checks that nodes write their records again after the registry was
// lost.
func TestRegistryLost(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	a, b, _ := pair(t)
	js := a.cluster.engine.Load().Shared
	for name := range js.StreamNames(t.Context()).Name() {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, "b has written its devices again", func() bool {
		dev := b.lookup("robot")
		return dev != nil && dev.State == ferrule.StateOnline
	})
	wait.For(t, "a works again", func() bool { dev := a.lookup("robot"); return dev != nil && a.cluster.State().Working })
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	wait.For(t, "a call", func() bool {
		_, err := a.callTool(ctx, "robot", "look")
		return err == nil
	})
}

// TestSameName checks that a node whose name is taken does not join, and reports why.
func TestSameName(t *testing.T) {
	a, b, cfg := pair(t)
	other := node(t, "b", cfg)
	other.putDevice("lamp", "lamp", ferrule.StateOnline)
	wait.For(t, "the reason is reported", func() bool { return strings.Contains(other.cluster.State().Reason, "another node has this name") })
	if a.seen("lamp") != nil || b.seen("lamp") != nil || other.cluster.State().Working {
		t.Error("it has joined")
	}
	b.stop()
	wait.For(t, "it joins once the other is gone", func() bool { return a.seen("lamp") != nil })
}

// TestCopiedNode checks that of two nodes with the same files one joins, and the other
// reports why it does not.
func TestCopiedNode(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	cfg := clustertest.OneServer(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	first := nodeWith(t, "a", cfg, noJournal{}, dirs[0])
	wait.For(t, "it joins", func() bool { return first.cluster.State().Working })
	if err := os.CopyFS(dirs[1], os.DirFS(dirs[0])); err != nil {
		t.Fatal(err)
	}
	second := nodeWith(t, "a", cfg, noJournal{}, dirs[1])
	wait.For(t, "one reports the reason", func() bool { return strings.Contains(first.cluster.State().Reason, "copied") })
	for end := time.Now().Add(2 * registry.LeaseRenew); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if first.cluster.State().Working || !second.cluster.State().Working {
			t.Fatalf("%+v, %+v", first.cluster.State(), second.cluster.State())
		}
	}
	second.stop()
	wait.For(t, "it joins once the other is gone", func() bool { return first.cluster.State().Working })
}

// openBucket opens a bucket with a connection of its own.
func openBucket(t *testing.T, cfg Config, bucket string) jetstream.KeyValue {
	t.Helper()
	kv, err := clustertest.Connect(t, cfg.Servers[0]).KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// TestManifestsMissing checks that manifests that never arrive do not keep others from
// being fetched.
func TestManifestsMissing(t *testing.T) {
	a, b, cfg := pair(t)
	records := openBucket(t, cfg, engine.DevicesBucket(0))
	for n := range 64 { // more than are fetched at a time
		record := fmt.Sprintf(`{"address":"usb:%d","node":"b","epoch":1,"kind":"lost%d","state":"online","since":1}`, n, n)
		if _, err := records.PutString(t.Context(), fmt.Sprint("home.lost", n), record); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, "a has the records", func() bool {
		_, known := a.cluster.Known("lost63")
		return known
	})
	b.putDevice("lamp", "lamp", ferrule.StateOnline)
	wait.For(t, "a sees lamp", func() bool { return a.seen("lamp") != nil })
}

// TestLeaseOfAnother checks that a node that stops does not delete the lease of another
// node.
func TestLeaseOfAnother(t *testing.T) {
	a, _, cfg := pair(t)
	leases := openBucket(t, cfg, engine.NodesBucket)
	if _, err := leases.Put(t.Context(), "home.a", []byte(`{"identity":"another","boot":"another"}`)); err != nil {
		t.Fatal(err)
	}
	a.stop()
	if _, err := leases.Get(t.Context(), "home.a"); err != nil {
		t.Errorf("the lease of the other node: %v", err)
	}
}

// TestLeaseTTL checks that renewing a lease keeps its time to live, and that an idle node
// sends nothing else.
func TestLeaseTTL(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	a, _, _ := pair(t)
	e := a.cluster.engine.Load()
	// On a busy machine the first window still has a message of joining.
	wait.For(t, "a sends nothing but renewals", func() bool {
		began, before := time.Now(), e.Conn.Stats().OutMsgs
		time.Sleep(registry.LeaseRenew + registry.LeaseRenew/2)
		sent := e.Conn.Stats().OutMsgs - before
		return sent >= 1 && sent <= 1+uint64(time.Since(began)/registry.LeaseRenew)
	})
	leases, err := e.Shared.Stream(t.Context(), "KV_"+engine.NodesBucket)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := leases.GetLastMsgForSubject(t.Context(), "$KV."+engine.NodesBucket+".home.a")
	if err != nil || msg.Header.Get(jetstream.MsgTTLHeader) == "" {
		t.Errorf("the lease is %v without a time to live, %v", msg, err)
	}
}

// TestClusterStartsLater checks that a node waits for a cluster that is not running yet.
func TestClusterStartsLater(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Replicas, cfg.Shards = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", port)}, 1, 1
	a := node(t, "a", cfg)
	a.putDevice("robot", "arm", ferrule.StateOnline)
	wait.For(t, "the unreachable server is reported", func() bool {
		s := a.cluster.State()
		return !s.Working && strings.Contains(s.Reason, cfg.Servers[0])
	})
	clustertest.StartServer(t, &server.Options{Port: port, StoreDir: t.TempDir()})
	wait.For(t, "its devices are recorded", func() bool { return a.lookup("robot") != nil })
}

// TestFind checks that a device that does not fit into the view is found when called.
func TestFind(t *testing.T) {
	cfg := clustertest.OneServer(t)
	cfg.View = 10
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	b.serve = echo
	for i := range 30 {
		b.putDevice(fmt.Sprintf("d%d", i), "arm", ferrule.StateOnline)
	}
	wait.For(t, "the last is recorded", func() bool { return b.lookup("d29") != nil })
	inView := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.elsewhere)
	}
	wait.For(t, "the view is full", func() bool { return inView() >= cfg.View })
	for i := range 30 {
		id := fmt.Sprintf("d%d", i)
		if a.seen(id) != nil {
			continue
		}
		dev, manifest, handle, ok := a.cluster.Find(id)
		if !ok || dev.Node != "b" || dev.Model != "arm" || dev.State != ferrule.StateOnline {
			t.Fatalf("%s: %+v, %t", id, dev, ok)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
		result, err := handle(ctx, &ferrule.Call{Device: id, Tool: "look", Target: ferrule.Target{Device: dev, Manifest: manifest, Tool: manifest.Tool("look")}})
		cancel()
		if err != nil || string(result.Value) != `"look"` {
			t.Errorf("%s: %v, %v", id, result, err)
		}
	}
	if _, _, _, ok := a.cluster.Find("nothing"); ok {
		t.Error("found a device that does not exist")
	}
	if n := inView(); n != cfg.View {
		t.Errorf("%d devices are in the view, want %d", n, cfg.View)
	}
}

// TestForgottenDevice checks that a device that its own node no longer knows is offline,
// and keeps its name.
func TestForgottenDevice(t *testing.T) {
	cfg := clustertest.OneServer(t)
	dir := t.TempDir()
	b := nodeWith(t, "b", cfg, noJournal{}, dir)
	b.putDevice("robot", "arm", ferrule.StateOnline)
	wait.For(t, "recorded", func() bool { return b.lookup("robot") != nil })
	b.stop()
	again := nodeWith(t, "b", cfg, noJournal{}, dir)
	wait.For(t, "offline", func() bool {
		dev := again.lookup("robot")
		return dev != nil && dev.State == ferrule.StateOffline && dev.Reason == "no longer known to its node"
	})
}

// TestEvents checks that events of devices are published and stored.
func TestEvents(t *testing.T) {
	a, b, _ := pair(t)
	wait.For(t, "the first appearance is stored", func() bool { return a.storedEvents() == 1 })
	received := make(chan string, 100)
	messages, err := a.cluster.engine.Load().Conn.SubscribeSync("ferrule.home.event.>")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			msg, err := messages.NextMsgWithContext(t.Context())
			if err != nil {
				return
			}
			received <- msg.Subject
		}
	}()
	a.cluster.engine.Load().Conn.Flush()
	dev := b.putDevice("robot", "arm", ferrule.StateOffline)
	pending := *dev
	pending.State, pending.Trust, pending.Since = ferrule.StateOnline, ferrule.TrustPending, time.Now()
	b.cluster.Put(&pending, &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "bad", Quarantine: "no"}}})
	changed := pending
	changed.Kind, changed.Previous, changed.Since = "another", pending.Kind, time.Now().Add(time.Second)
	b.mu.Lock()
	b.manifests["another"] = &ferrule.Manifest{}
	b.mu.Unlock()
	b.cluster.Put(&changed, &ferrule.Manifest{})
	b.cluster.Remove("robot")
	var got []string
	for len(got) < 9 {
		select {
		case s := <-received:
			got = append(got, strings.TrimPrefix(s, "ferrule.home.event.b.robot."))
		case <-time.After(wait.Ample):
			t.Fatalf("only %v", got)
		}
	}
	want := []string{"gone", "appeared", "pending", "quarantined", "gone", "appeared", "changed", "pending", "gone"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	wait.For(t, "all events are stored, with the first appearance", func() bool { return a.storedEvents() == 10 })
}

// realJournal opens a journal.
func realJournal(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// TestJournalCopied checks that a journal is copied in order, each record once, however
// often the node restarts.
func TestJournalCopied(t *testing.T) {
	cfg := clustertest.OneServer(t)
	j := realJournal(t, t.TempDir())
	reader := node(t, "reader", cfg)
	write := func(n int) {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				if err := j.Append(ferrule.Entry{Call: "c", Phase: ferrule.Intent, Device: "robot", Tool: "move"}, true); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	total, dir := 0, t.TempDir()
	for range 5 {
		writer := nodeWith(t, "writer", cfg, j, dir)
		write(200)
		total += 200
		writer.stop() // at any point of copying
	}
	nodeWith(t, "writer", cfg, j, dir)
	lines := func() (intents int, seqs []uint64) {
		err := reader.cluster.Journals().Read(t.Context(), ferrule.JournalQuery{Node: "writer"}, func(l ferrule.JournalLines) error {
			for line := range strings.Lines(string(l.Lines)) {
				var e ferrule.Entry
				if err := json.Unmarshal([]byte(line[65:]), &e); err != nil {
					return err
				}
				if seqs = append(seqs, e.Seq); e.Phase == ferrule.Intent { // not a checkpoint
					intents++
				}
			}
			return nil
		})
		if err != nil {
			return 0, nil
		}
		return intents, seqs
	}
	wait.For(t, "all records are copied", func() bool { n, _ := lines(); return n == total })
	_, seqs := lines()
	for i, seq := range seqs {
		if seq != uint64(i+1) {
			t.Fatalf("record %d is at position %d", seq, i+1)
		}
	}
}

// TestConcerns checks that problems of different concerns are independent.
func TestConcerns(t *testing.T) {
	b, err := New(Parts{Config: DefaultConfig(), Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	created := b.State().Since
	b.report(leasing, "")
	if s := b.State(); s.Working || s.Since != created {
		t.Errorf("got %+v", s)
	}
	b.report(connecting, "")
	if s := b.State(); !s.Working {
		t.Errorf("got %+v", s)
	}
	b.report(writing, "no room")
	b.report(leasing, "late")
	b.report(leasing, "")
	if s := b.State(); s.Working || s.Reason != "no room" {
		t.Errorf("got %+v", s)
	}
	b.report(writing, "")
	if s := b.State(); !s.Working || s.Reason != "" {
		t.Errorf("got %+v", s)
	}
}

// brokenJournal fails.
type brokenJournal struct{ noJournal }

func (brokenJournal) Lines(context.Context, uint64, int) (ferrule.JournalLines, error) {
	return ferrule.JournalLines{}, errors.New("the file is truncated")
}

// TestBrokenJournal checks that a node whose journal cannot be read joins.
func TestBrokenJournal(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := node(t, "a", cfg), nodeWith(t, "b", cfg, brokenJournal{}, t.TempDir())
	b.putDevice("robot", "arm", ferrule.StateOnline)
	wait.For(t, "a sees robot", func() bool { return a.seen("robot") != nil })
	time.Sleep(time.Second)
	if !b.cluster.State().Working {
		t.Errorf("got %+v", b.cluster.State())
	}
}

// TestJournalConsumers checks that reading journals leaves no consumers behind: their
// number is limited.
func TestJournalConsumers(t *testing.T) {
	cfg := clustertest.OneServer(t)
	j := realJournal(t, t.TempDir())
	a := nodeWith(t, "a", cfg, j, t.TempDir())
	wait.For(t, "it joins", func() bool { return a.cluster.State().Working })
	read := func() (n int) {
		if err := a.cluster.Journals().Read(t.Context(), ferrule.JournalQuery{}, func(ferrule.JournalLines) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 5 {
		read()
	}
	if err := j.Append(ferrule.Entry{Call: "c", Phase: ferrule.Intent, Device: "robot", Tool: "move"}, true); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the record is copied", func() bool { return read() == 1 })
	stream, err := a.cluster.engine.Load().Shared.Stream(t.Context(), engine.JournalStream)
	if err != nil || stream.CachedInfo().State.Consumers != 0 {
		t.Errorf("consumers are left: %+v, %v", stream, err)
	}
}

// TestLastEvents checks that events that occur while a node stops are stored too.
func TestLastEvents(t *testing.T) {
	a, b, _ := pair(t)
	b.cluster.Put(&ferrule.Device{
		ID: "robot", Address: "usb:robot", Node: "b", Kind: "k", State: ferrule.StateOffline, Since: time.Now(), Reason: "the gateway was stopped",
	}, nil)
	b.cluster.farewell = wait.Ample
	b.stop()
	wait.For(t, "both events are stored", func() bool { return a.storedEvents() == 2 })
}
