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
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

func (s *site) record(id string) *ferrule.Device {
	s.t.Helper()
	h := s.bus.home.Load()
	if h == nil {
		return nil
	}
	e, err := h.registry.get(s.t.Context(), id)
	if err != nil {
		return nil
	}
	return e.device
}

// TestRecords: what becomes of a device stands in the registry, and other nodes see
// it.
func TestRecords(t *testing.T) {
	a, b, _ := pair(t)
	b.has("robot", "arm", ferrule.StateOffline)
	eventually(t, 5*time.Second, "offline", func() bool { return a.sees("robot").State == ferrule.StateOffline })
	if dev := a.sees("robot"); dev.Epoch != 1 || dev.Node != "b" {
		t.Errorf("got %+v", dev)
	}
	b.has("robot", "hand", ferrule.StateOnline) // as another Kind
	eventually(t, 5*time.Second, "another Kind", func() bool { return a.sees("robot").Model == "hand" })
	if dev := a.sees("robot"); dev.Epoch != 1 {
		t.Errorf("it changed hands: %+v", dev)
	}
	b.bus.Remove("robot")
	eventually(t, 5*time.Second, "removed", func() bool { return a.sees("robot") == nil })
	b.has("robot", "arm", ferrule.StateOnline) // over the mark of its end
	eventually(t, 5*time.Second, "there again", func() bool { return a.sees("robot") != nil })
}

// TestRecordIsSmall: a server has all records in memory.
func TestRecordIsSmall(t *testing.T) {
	dev := &ferrule.Device{
		ID: "esp32-demo-ab12", Address: "usb:303a:1001:34851871A3D4", Transport: "serial", Protocol: "mcpu", Node: "gateway-7", Epoch: 12,
		Kind: ferrule.Kind(strings.Repeat("f", 64)), State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}
	r := recordOf(dev, 12)
	data, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes: %s", len(data), data)
	if len(data) > 256 {
		t.Errorf("a record takes %d bytes", len(data))
	}
	back, err := parseRecord(data)
	if err != nil {
		t.Fatal(err)
	}
	dev.Since = dev.Since.Truncate(time.Millisecond)
	if got := back.device(dev.ID); fmt.Sprint(*got) != fmt.Sprint(*dev) {
		t.Errorf("got %+v, want %+v", got, dev)
	}
}

// TestRegistryLost: it is an index. When it is lost, nodes write anew what is
// theirs.
func TestRegistryLost(t *testing.T) {
	a, b, _ := pair(t)
	js := a.bus.engine.Load().home
	for name := range js.StreamNames(t.Context()).Name() {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 20*time.Second, "b has written its devices again", func() bool { dev := b.record("robot"); return dev != nil && dev.State == ferrule.StateOnline })
	eventually(t, 20*time.Second, "a works again", func() bool { dev := a.record("robot"); return dev != nil && a.bus.State().Working })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	eventually(t, 10*time.Second, "a call", func() bool {
		_, err := a.calls(ctx, "robot", "look")
		return err == nil
	})
}

// TestSameName: a node whose name another one has does not take part, and says why.
// Its own devices are not its business, so they are served.
func TestSameName(t *testing.T) {
	a, b, cfg := pair(t)
	other := node(t, "b", cfg)
	other.has("lamp", "lamp", ferrule.StateOnline)
	eventually(t, 5*time.Second, "it says why", func() bool { return strings.Contains(other.bus.State().Why, "another node has this name") })
	if a.sees("lamp") != nil || b.sees("lamp") != nil || other.bus.State().Working {
		t.Error("it takes part")
	}
	b.stop()
	eventually(t, 10*time.Second, "it takes part once the other has gone", func() bool { return a.sees("lamp") != nil })
}

// TestCopiedNode: of two nodes with the same files one takes part, and the other says
// why it does not.
func TestCopiedNode(t *testing.T) {
	cfg := oneServer(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	first := nodeWith(t, "a", cfg, noJournal{}, dirs[0])
	eventually(t, 5*time.Second, "it takes part", func() bool { return first.bus.State().Working })
	if err := os.CopyFS(dirs[1], os.DirFS(dirs[0])); err != nil {
		t.Fatal(err)
	}
	second := nodeWith(t, "a", cfg, noJournal{}, dirs[1])
	eventually(t, 3*leaseRenew, "one says why", func() bool { return strings.Contains(first.bus.State().Why, "copied") })
	for end := time.Now().Add(2 * leaseRenew); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if first.bus.home.Load() != nil || !second.bus.State().Working {
			t.Fatalf("%+v, %+v", first.bus.State(), second.bus.State())
		}
	}
	second.stop()
	eventually(t, 3*leaseRenew, "it takes part once the other has gone", func() bool { return first.bus.State().Working })
}

// TestLeaseOfAnother: a node that ends leaves the lease alone that is another's by now.
func TestLeaseOfAnother(t *testing.T) {
	a, _, _ := pair(t)
	h := a.bus.home.Load()
	key := a.bus.names.key("a")
	if _, err := h.nodes.Put(t.Context(), key, []byte(`{"identity":"another","boot":"another"}`)); err != nil {
		t.Fatal(err)
	}
	a.bus.giveUpLease(t.Context(), a.bus.engine.Load(), h)
	if _, err := h.nodes.Get(t.Context(), key); err != nil {
		t.Errorf("the other's lease: %v", err)
	}
}

// TestLeaseLives: renewing a lease does not take its time to live away, and it is all
// that a node says when nothing happens.
func TestLeaseLives(t *testing.T) {
	a, _, _ := pair(t)
	e := a.bus.engine.Load()
	before := e.conn.Stats().OutMsgs
	time.Sleep(leaseRenew + leaseRenew/2)
	sent := e.conn.Stats().OutMsgs - before
	if sent < 1 || sent > 2 {
		t.Errorf("%d messages were sent in the time of a renewal or two", sent)
	}
	leases, err := e.behind(t.Context(), nodesBucket)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := leases.GetLastMsgForSubject(t.Context(), "$KV."+nodesBucket+"."+a.bus.names.key("a"))
	if err != nil || msg.Header.Get(jetstream.MsgTTLHeader) == "" {
		t.Errorf("the lease is %v, %v", msg, err)
	}
}

// TestAwaitsCluster: a cluster that is not there yet is waited for.
func TestAwaitsCluster(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Replicas, cfg.Shards = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", port)}, 1, 1
	a := node(t, "a", cfg)
	a.has("robot", "arm", ferrule.StateOnline)
	eventually(t, 5*time.Second, "it says which cluster is not there", func() bool {
		s := a.bus.State()
		return !s.Working && strings.Contains(s.Why, cfg.Servers[0])
	})
	startServer(t, &server.Options{Port: port, StoreDir: t.TempDir()})
	eventually(t, 10*time.Second, "its devices are in the registry", func() bool { return a.record("robot") != nil })
}

// TestView: what is too much to be kept in view is found when it is asked for.
func TestView(t *testing.T) {
	cfg := oneServer(t)
	cfg.View = 10
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	b.serve = echo
	for i := range 30 {
		b.has(fmt.Sprintf("d%d", i), "arm", ferrule.StateOnline)
	}
	eventually(t, 5*time.Second, "the last is in the registry", func() bool { return b.record("d29") != nil })
	eventually(t, 5*time.Second, "the view is full", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.elsewhere) == 10 && a.bus.view.incomplete()
	})
	for i := range 30 {
		id := fmt.Sprintf("d%d", i)
		if a.sees(id) != nil {
			continue
		}
		dev, laid, way, ok := a.bus.Find(id)
		if !ok || dev.Node != "b" || dev.Model != "arm" || dev.State != ferrule.StateOnline {
			t.Fatalf("%s: %+v, %t", id, dev, ok)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		result, err := way(ctx, &ferrule.Call{Device: id, Tool: "look", Target: ferrule.Target{Device: dev, Manifest: laid, Tool: laid.Tool("look")}})
		cancel()
		if err != nil || string(result.Value) != `"look"` {
			t.Errorf("%s: %v, %v", id, result, err)
		}
	}
	if _, _, _, ok := a.bus.Find("nothing"); ok {
		t.Error("found what is not there")
	}
}

// TestMemoryOfNode: what the registry has of a node that the node does not know any
// more is offline, and keeps its name.
func TestMemoryOfNode(t *testing.T) {
	cfg := oneServer(t)
	dir := t.TempDir()
	b := nodeWith(t, "b", cfg, noJournal{}, dir)
	b.has("robot", "arm", ferrule.StateOnline)
	eventually(t, 5*time.Second, "recorded", func() bool { return b.record("robot") != nil })
	b.stop()
	again := nodeWith(t, "b", cfg, noJournal{}, dir)
	eventually(t, 5*time.Second, "offline", func() bool {
		dev := again.record("robot")
		return dev != nil && dev.State == ferrule.StateOffline && dev.Reason == "its node no longer knows it"
	})
}

// TestEvents: what happens to devices is told to whoever listens, and kept.
func TestEvents(t *testing.T) {
	a, b, _ := pair(t)
	heard := make(chan string, 100)
	messages, err := a.bus.engine.Load().conn.SubscribeSync("ferrule.home.event.>")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			msg, err := messages.NextMsg(10 * time.Second)
			if err != nil {
				return
			}
			heard <- msg.Subject
		}
	}()
	a.bus.engine.Load().conn.Flush()
	dev := b.has("robot", "arm", ferrule.StateOffline)
	held := *dev
	held.State, held.Trust, held.Since = ferrule.StateOnline, ferrule.TrustPending, time.Now()
	b.bus.Put(&held, &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "bad", Quarantine: "no"}}})
	changed := held
	changed.Kind, changed.Previous, changed.Since = "another", held.Kind, time.Now().Add(time.Second)
	b.mu.Lock()
	b.manifests["another"] = &ferrule.Manifest{}
	b.mu.Unlock()
	b.bus.Put(&changed, &ferrule.Manifest{})
	b.bus.Remove("robot")
	var got []string
	for len(got) < 9 {
		select {
		case s := <-heard:
			got = append(got, strings.TrimPrefix(s, "ferrule.home.event.b.robot."))
		case <-time.After(5 * time.Second):
			t.Fatalf("only %v", got)
		}
	}
	want := []string{"gone", "appeared", "pending", "quarantined", "gone", "appeared", "changed", "pending", "gone"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	info, err := a.bus.home.Load().events.Info(t.Context())
	if err != nil || info.State.Msgs != 10 { // with the first appearance
		t.Errorf("%d are kept, %v", info.State.Msgs, err)
	}
}

// realJournal is the journal of a node in a test.
func realJournal(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// TestJournalCopied: a journal is copied in order, each record once, however often
// the node is started anew.
func TestJournalCopied(t *testing.T) {
	cfg := oneServer(t)
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
		writer.stop() // wherever it is with copying
	}
	nodeWith(t, "writer", cfg, j, dir)
	lines := func() (n int, seqs []uint64) {
		err := reader.bus.Journals().Read(t.Context(), ferrule.JournalQuery{Node: "writer"}, func(l ferrule.JournalLines) error {
			for line := range strings.Lines(string(l.Lines)) {
				var e ferrule.Entry
				if err := json.Unmarshal([]byte(line[65:]), &e); err != nil {
					return err
				}
				seqs = append(seqs, e.Seq)
			}
			return nil
		})
		if err != nil {
			return 0, nil
		}
		return len(seqs), seqs
	}
	eventually(t, 10*time.Second, "all are copied", func() bool { n, _ := lines(); return n == total })
	_, seqs := lines()
	for i, seq := range seqs {
		if seq != uint64(i+1) {
			t.Fatalf("record %d stands at %d", seq, i+1)
		}
	}
}

// TestUnacknowledged: writes that nobody answers are given up. A connection has only so
// many of them, and none could be made any more.
func TestUnacknowledged(t *testing.T) {
	cfg := oneServer(t)
	e, err := startEngine(cfg, t.TempDir(), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	if err := e.linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.conn.Subscribe("$KV.>", func(*nats.Msg) {}); err != nil { // it hears them, and says nothing
		t.Fatal(err)
	}
	r := &kvRegistry{engine: e, names: names{"home", "a"}, shards: make([]jetstream.KeyValue, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for _, o := range r.put(ctx, []write{{id: "one", data: []byte("x")}, {id: "two", data: []byte("x")}}) {
		if o.err == nil {
			t.Errorf("got %+v", o)
		}
	}
	eventually(t, 2*writeTime, "they are given up", func() bool { return e.home.PublishAsyncPending() == 0 })
}

// TestConcerns: that one thing is well again does not make good another.
func TestConcerns(t *testing.T) {
	b := &Cluster{parts: Parts{Log: slog.New(slog.DiscardHandler)}, intake: &intake{}, view: bareView()}
	b.wrong[taking] = starting
	b.say(leasing, "")
	if s := b.State(); s.Working || !s.Since.IsZero() {
		t.Errorf("got %+v", s)
	}
	b.say(taking, "")
	if s := b.State(); !s.Working {
		t.Errorf("got %+v", s)
	}
	b.say(writing, "no room")
	b.say(leasing, "late")
	b.say(leasing, "")
	if s := b.State(); s.Working || s.Why != "no room" {
		t.Errorf("got %+v", s)
	}
	b.say(writing, "")
	if s := b.State(); !s.Working || s.Why != "" {
		t.Errorf("got %+v", s)
	}
}

// brokenJournal cannot be read.
type brokenJournal struct{ noJournal }

func (brokenJournal) Lines(context.Context, uint64, int) (ferrule.JournalLines, error) {
	return ferrule.JournalLines{}, errors.New("its file was cut")
}

// TestBrokenJournal: a node whose journal cannot be read takes part.
func TestBrokenJournal(t *testing.T) {
	cfg := oneServer(t)
	a, b := node(t, "a", cfg), nodeWith(t, "b", cfg, brokenJournal{}, t.TempDir())
	b.has("robot", "arm", ferrule.StateOnline)
	eventually(t, 5*time.Second, "a sees robot", func() bool { return a.sees("robot") != nil })
	time.Sleep(time.Second)
	if !b.bus.State().Working {
		t.Errorf("got %+v", b.bus.State())
	}
}

// TestReadersLeave: who has read the journals leaves nothing behind. A stream has only so
// many readers.
func TestReadersLeave(t *testing.T) {
	cfg := oneServer(t)
	j := realJournal(t, t.TempDir())
	a := nodeWith(t, "a", cfg, j, t.TempDir())
	eventually(t, 5*time.Second, "it takes part", func() bool { return a.bus.State().Working })
	read := func() (n int) {
		if err := a.bus.Journals().Read(t.Context(), ferrule.JournalQuery{}, func(ferrule.JournalLines) error { n++; return nil }); err != nil {
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
	eventually(t, 5*time.Second, "it is copied", func() bool { return read() == 1 })
	info, err := a.bus.home.Load().journal.Info(t.Context())
	if err != nil || info.State.Consumers != 0 {
		t.Errorf("%d readers are left, %v", info.State.Consumers, err)
	}
}

// TestLastEvents: what happens to devices while a node is stopped is told, too.
func TestLastEvents(t *testing.T) {
	a, b, _ := pair(t)
	b.bus.Put(&ferrule.Device{
		ID: "robot", Address: "usb:robot", Node: "b", Kind: "k", State: ferrule.StateOffline, Since: time.Now(), Reason: "the gateway was stopped",
	}, nil)
	b.stop()
	info, err := a.bus.home.Load().events.Info(t.Context())
	if err != nil || info.State.Msgs != 2 {
		t.Errorf("%d events are kept, %v", info.State.Msgs, err)
	}
}
