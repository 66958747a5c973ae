package shared

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/seal"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// node is the records of one node, and what its watcher saw.
type node struct {
	*Records
	engine *engine.Engine
	log    *bytes.Buffer

	mu   sync.Mutex
	seen map[string]string
	all  []string
}

func newNode(t *testing.T, name string) *node {
	t.Helper()
	n := &node{seen: make(map[string]string), log: &bytes.Buffer{}}
	var err error
	n.Records, err = New(Options{Names: engine.Names{Tenant: "acme", Node: name}, Secret: secret, Log: slog.New(slog.NewTextHandler(n.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	n.Watch(func(key string, value []byte) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all = append(n.all, key+"="+string(value))
		if value == nil {
			delete(n.seen, key)
			return
		}
		n.seen[key] = string(value)
	})
	return n
}

// join connects a node, and runs it until the test ends or leave is called.
func (n *node) join(t *testing.T, cfg engine.Config) (leave func()) {
	t.Helper()
	cfg.Node, cfg.Tenant = n.names.Node, "acme"
	e, err := engine.Start(cfg, t.TempDir(), slog.New(slog.DiscardHandler), n.Refresh)
	if err != nil {
		t.Fatal(err)
	}
	n.engine = e
	if err := n.Connect(e); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if s, err := n.Open(ctx, e); err == nil {
				s.Run(ctx)
			}
			if ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}()
	leave = sync.OnceFunc(func() {
		cancel()
		n.Disconnect()
		e.Close()
		<-done
	})
	t.Cleanup(leave)
	return leave
}

func (n *node) value(key string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.seen[key]
	return v, ok
}

func (n *node) expect(t *testing.T, key, want string) {
	t.Helper()
	wait.For(t, fmt.Sprintf("%s sees %s=%q", n.names.Node, key, want), func() bool {
		v, ok := n.value(key)
		return ok && v == want
	})
}

func (n *node) expectGone(t *testing.T, key string) {
	t.Helper()
	wait.For(t, n.names.Node+" sees that "+key+" is gone", func() bool {
		_, ok := n.value(key)
		return !ok
	})
}

func (n *node) put(t *testing.T, key, value string) {
	t.Helper()
	if err := n.Put(key, []byte(value)); err != nil && !errors.Is(err, ErrNotWritten) { // a busy machine
		t.Fatal(err)
	}
}

func (n *node) bucket(t *testing.T) jetstream.KeyValue {
	t.Helper()
	kv, err := n.engine.Shared.KeyValue(t.Context(), engine.SharedBucket)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// saved waits until all records of a node are in the bucket.
func (n *node) saved(t *testing.T) {
	t.Helper()
	wait.For(t, "all is written", func() bool { return n.Unsaved() == 0 })
}

// TestRecords: a record reaches all nodes, also one that joins later, and so does its
// deletion.
func TestRecords(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := newNode(t, "a"), newNode(t, "b")
	a.join(t, cfg)
	b.join(t, cfg)
	a.put(t, "stop", "one")
	b.expect(t, "stop", "one")
	b.put(t, "stop", "two")
	a.expect(t, "stop", "two")
	a.put(t, "lease.pump", "")
	b.expect(t, "lease.pump", "")
	c := newNode(t, "c")
	c.join(t, cfg)
	c.expect(t, "stop", "two")
	if err := c.Delete("stop"); err != nil && !errors.Is(err, ErrNotWritten) {
		t.Fatal(err)
	}
	a.expectGone(t, "stop")
	b.expectGone(t, "stop")
	c.saved(t)
	d := newNode(t, "d")
	d.join(t, cfg)
	d.expect(t, "lease.pump", "")
	if _, ok := d.value("stop"); ok {
		t.Error("a deleted record is there")
	}
	a.put(t, "stop", "three")
	d.expect(t, "stop", "three")
}

// TestAlone: a single node has its records after a restart.
func TestAlone(t *testing.T) {
	t.Parallel()
	cfg, dir := engine.DefaultConfig(), t.TempDir()
	for _, want := range []string{"", "x"} {
		a := newNode(t, "a")
		e, err := engine.Start(cfg, dir, slog.New(slog.DiscardHandler), func() {})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Connect(e); err != nil {
			t.Fatal(err)
		}
		s, err := a.Open(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := a.value("k"); got != want { // Open has read all records
			t.Errorf("got %q, want %q", got, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		a.put(t, "k", "x")
		a.saved(t)
		cancel()
		<-ended
		e.Close()
	}
}

// TestSynced: a node that starts learns what the bucket has before it is told that it
// knows all.
func TestSynced(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := newNode(t, "a"), newNode(t, "b")
	a.join(t, cfg)
	a.put(t, "k", "v")
	a.saved(t)
	known := make(chan string, 16)
	b.OnSync(func() {
		v, _ := b.value("k")
		select {
		case known <- v:
		default:
		}
	})
	b.join(t, cfg)
	if v := <-known; v != "v" {
		t.Errorf("knows %q", v)
	}
}

// TestUnreachable: without NATS, Put returns, this node sees the record, and the
// newest value is written when NATS is back.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := &server.Options{Port: server.RANDOM_PORT, StoreDir: dir, JetStreamDomain: "hub"}
	s := clustertest.StartServer(t, options)
	cfg := engine.DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Replicas = engine.Join, []string{s.ClientURL()}, 1
	a, b := newNode(t, "a"), newNode(t, "b")
	a.join(t, cfg)
	b.join(t, cfg)
	a.put(t, "k", "0")
	b.expect(t, "k", "0")
	again := *options
	again.Port = s.Addr().(*net.TCPAddr).Port
	s.Shutdown()
	s.WaitForShutdown()
	longest := time.Duration(0)
	for i := range 3 {
		began := time.Now()
		if err := a.Put("k", fmt.Append(nil, i+1)); !errors.Is(err, ErrNotWritten) {
			t.Fatalf("got %v", err)
		}
		longest = max(longest, time.Since(began))
		a.expect(t, "k", fmt.Sprint(i+1))
	}
	figure.AtMost(t, "Put without NATS", longest, putTime+5*time.Second)
	clustertest.StartServer(t, &again)
	b.expect(t, "k", "3")
	a.saved(t)
}

// TestAnnouncedUnsaved: after a reconnect, other nodes learn what could not be written,
// even while there is no bucket.
func TestAnnouncedUnsaved(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := newNode(t, "a"), newNode(t, "b")
	for _, n := range []*node{a, b} { // connected, but without a session
		cfg.Node, cfg.Tenant = n.names.Node, "acme"
		e, err := engine.Start(cfg, t.TempDir(), slog.New(slog.DiscardHandler), func() {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		if n == a {
			a.Put("k", []byte("v")) // before it is connected
		}
		if err := n.Connect(e); err != nil {
			t.Fatal(err)
		}
		if err := e.WaitLinked(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.Refresh()
	b.expect(t, "k", "v")
	a.Disconnect()
}

// TestForged: what other clients of NATS write is ignored, logged a few times, and
// replaced, and so is an earlier record, a record of another key, and a deletion.
func TestForged(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a := newNode(t, "a")
	a.join(t, cfg)
	a.put(t, "k", "first")
	a.saved(t)
	old, err := a.bucket(t).Get(t.Context(), "acme.k")
	if err != nil {
		t.Fatal(err)
	}
	a.put(t, "k", "second")
	a.put(t, "other", "value") // newer than k
	a.saved(t)
	other, err := a.bucket(t).Get(t.Context(), "acme.other")
	if err != nil {
		t.Fatal(err)
	}
	stranger, _ := New(Options{Names: engine.Names{Tenant: "acme", Node: "a"}, Secret: bytes.Repeat([]byte("x"), 32), Log: slog.New(slog.DiscardHandler)})
	forged, _ := record{Key: "k", Version: maxVersion, Node: "z", Value: []byte("forged")}.sign(stranger.key)
	globex, _ := New(Options{Names: engine.Names{Tenant: "globex", Node: "a"}, Secret: secret, Log: slog.New(slog.DiscardHandler)})
	tenant, _ := record{Key: "k", Version: maxVersion, Node: "z", Value: []byte("other tenant")}.sign(globex.key)
	huge, _ := record{Key: "k", Version: maxVersion + 1, Node: "z", Value: []byte("version")}.sign(a.key)
	kv := a.bucket(t)
	for what, write := range map[string]func() error{
		"forged":      func() error { _, err := kv.Put(t.Context(), "acme.k", forged); return err },
		"tenant":      func() error { _, err := kv.Put(t.Context(), "acme.k", tenant); return err },
		"version":     func() error { _, err := kv.Put(t.Context(), "acme.k", huge); return err },
		"noise":       func() error { _, err := kv.Put(t.Context(), "acme.k", []byte("noise")); return err },
		"empty":       func() error { _, err := kv.Put(t.Context(), "acme.k", nil); return err },
		"replayed":    func() error { _, err := kv.Put(t.Context(), "acme.k", old.Value()); return err },
		"another key": func() error { _, err := kv.Put(t.Context(), "acme.k", other.Value()); return err },
		"deleted":     func() error { return kv.Delete(t.Context(), "acme.k") },
		"purged":      func() error { return kv.Purge(t.Context(), "acme.k") },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		wait.For(t, what+" is replaced", func() bool {
			e, err := kv.Get(t.Context(), "acme.k")
			if err != nil {
				return false
			}
			r, err := parse(a.key, "k", e.Value())
			return err == nil && string(r.Value) == "second"
		})
		b := newNode(t, "b")
		leave := b.join(t, cfg)
		b.expect(t, "k", "second")
		leave()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, seen := range a.all {
		if seen != "k=first" && seen != "k=second" && seen != "other=value" {
			t.Errorf("saw %q", seen)
		}
	}
}

// TestNoiseIsLoggedRarely: a client that writes noise does not fill the log.
func TestNoiseIsLoggedRarely(t *testing.T) {
	t.Parallel()
	a := newNode(t, "a")
	for i := range 1000 {
		a.receive("k", []byte("noise"), uint64(i+1))
	}
	if n := bytes.Count(a.log.Bytes(), []byte("\n")); n < 1 || n > 11 {
		t.Errorf("%d lines were logged", n)
	}
}

// TestLostBucket: after the bucket is gone, nodes write their records again.
func TestLostBucket(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := newNode(t, "a"), newNode(t, "b")
	a.join(t, cfg)
	b.join(t, cfg)
	a.put(t, "k", "v")
	b.expect(t, "k", "v")
	if err := b.engine.Shared.DeleteKeyValue(t.Context(), engine.SharedBucket); err != nil {
		t.Fatal(err)
	}
	a.Refresh()
	c := newNode(t, "c")
	c.join(t, cfg)
	c.expect(t, "k", "v")
}

// TestConcurrent: nodes that write the same keys at the same time agree in the end, and
// the bucket has what they agree on.
func TestConcurrent(t *testing.T) {
	cfg := clustertest.OneServer(t)
	var nodes []*node
	for i := range 3 {
		n := newNode(t, fmt.Sprint("n", i))
		n.join(t, cfg)
		nodes = append(nodes, n)
	}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			for i := range 20 {
				key := fmt.Sprint("k", rand.N(3))
				if rand.N(4) == 0 {
					n.Delete(key)
				} else {
					n.Put(key, fmt.Append(nil, n.names.Node, i))
				}
			}
		})
	}
	wg.Wait()
	same := func() bool {
		first := nodes[0].copy()
		for _, n := range nodes {
			if n.Unsaved() > 0 || !maps.Equal(first, n.copy()) {
				return false
			}
		}
		late := newNode(t, "late")
		leave := late.join(t, cfg)
		defer leave()
		s, err := late.Open(t.Context(), late.engine)
		return err == nil && s != nil && maps.Equal(first, late.copy())
	}
	for end := time.Now().Add(wait.Ample); !same(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nodes disagree: %v %v %v", nodes[0].copy(), nodes[1].copy(), nodes[2].copy())
		}
	}
}

func (n *node) copy() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.seen)
}

// TestAnnounce: an announcement reaches the other nodes without the bucket, and each
// answers. Forged answers are ignored.
func TestAnnounce(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b, c := newNode(t, "a"), newNode(t, "b"), newNode(t, "c")
	for _, n := range []*node{a, b, c} {
		n.join(t, cfg)
		n.put(t, "joined."+n.names.Node, "")
		n.Serve(func(key string, value []byte, reply func([]byte)) {
			reply([]byte("seen " + string(value)))
			reply([]byte("done"))
		})
	}
	for _, n := range []*node{a, b, c} { // all listen
		for _, of := range []string{"a", "b", "c"} {
			n.expect(t, "joined."+of, "")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	answers := make(map[string]int)
	err := a.Announce(ctx, "stop", []byte("now"), func(node string, data []byte) {
		answers[node+" "+string(data)]++
		if len(answers) == 4 {
			cancel()
		}
	})
	if want := map[string]int{"b seen now": 1, "b done": 1, "c seen now": 1, "c done": 1}; err != nil || !maps.Equal(answers, want) {
		t.Errorf("got %v, %v", answers, err)
	}
	a.saved(t)
	forged, _ := sealJSON(bytes.Repeat([]byte("x"), 32), "answer", answer{Node: "b", Key: "stop", Version: 1})
	var got answer
	if openJSON(a.key, "answer", forged, &got) == nil {
		t.Error("a forged answer was accepted")
	}
	if record, _ := (record{Key: "stop", Node: "b"}).sign(a.key); openJSON(a.key, "answer", record, &got) == nil {
		t.Error("a record was accepted as an answer")
	}
}

// TestLimits: keys, values and the number of records are limited.
func TestLimits(t *testing.T) {
	t.Parallel()
	a := newNode(t, "a")
	for _, key := range []string{"", ".", "a.", "a b", "a*", ">", string(bytes.Repeat([]byte("k"), maxKey+1))} {
		if err := a.Put(key, nil); err == nil || errors.Is(err, ErrNotWritten) {
			t.Errorf("%q: got %v", key, err)
		}
	}
	if err := a.Put("k", make([]byte, MaxValue+1)); err == nil || errors.Is(err, ErrNotWritten) {
		t.Errorf("got %v", err)
	}
	for i := range MaxRecords {
		a.receive(fmt.Sprint("k", i), nil, 1)
		r, _ := record{Key: fmt.Sprint("k", i), Version: 1, Node: "b"}.sign(a.key)
		a.receive(fmt.Sprint("k", i), r, 1)
	}
	if err := a.Put("one-more", nil); err == nil || errors.Is(err, ErrNotWritten) {
		t.Errorf("got %v", err)
	}
	if err := a.Put("k1", []byte("x")); !errors.Is(err, ErrNotWritten) {
		t.Errorf("got %v", err)
	}
	// Orders to stop are not refused.
	if err := a.Put("stop.a", []byte("x")); !errors.Is(err, ErrNotWritten) {
		t.Errorf("got %v", err)
	}
	r, _ := record{Key: "stop.b", Version: 1, Node: "b", Value: []byte("y")}.sign(a.key)
	a.receive("stop.b", r, 1)
	a.expect(t, "stop.b", "y")
	if err := a.Put("one-more", nil); err == nil || errors.Is(err, ErrNotWritten) {
		t.Errorf("got %v", err)
	}
}

// TestWaiting: who puts again and again while NATS is away takes no more memory.
func TestWaiting(t *testing.T) {
	t.Parallel()
	a := newNode(t, "a")
	first, _, err := a.store("k", []byte("1"))
	second, _, err2 := a.store("k", []byte("2"))
	if err != nil || err2 != nil || first != second || len(a.waiting) != 1 {
		t.Errorf("got %v, %v, %d", err, err2, len(a.waiting))
	}
}

// TestBlockedWatcher: a watcher that waits for a disk delays neither Put, nor other
// watchers, nor announcements and their answers. There may be many at once.
func TestBlockedWatcher(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := newNode(t, "a"), newNode(t, "b")
	disk := make(chan struct{})
	for _, n := range []*node{a, b} {
		n.Records.watchers = append([]*watcher{{fn: func(key string, _ []byte) {
			if key != "joined.a" && key != "joined.b" {
				<-disk
			}
		}}}, n.Records.watchers...)
		n.join(t, cfg)
		n.put(t, "joined."+n.names.Node, "")
	}
	tools := make(chan struct{})
	b.Serve(func(_ string, _ []byte, reply func([]byte)) {
		reply(nil)
		<-tools
	})
	for _, n := range []*node{a, b} { // both listen
		n.expect(t, "joined.a", "")
		n.expect(t, "joined.b", "")
	}
	a.put(t, "lease.x", "1")
	b.expect(t, "lease.x", "1")
	const many = 40
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	var answered sync.WaitGroup
	answered.Add(many)
	for i := range many {
		go a.Announce(ctx, fmt.Sprint("stop.a.", i), []byte("now"), func(string, []byte) { answered.Done() })
	}
	all := make(chan struct{})
	go func() { answered.Wait(); close(all) }()
	select {
	case <-all:
	case <-ctx.Done():
		t.Error("not all were answered")
	}
	for i := range many {
		a.expect(t, fmt.Sprint("stop.a.", i), "now")
		b.expect(t, fmt.Sprint("stop.a.", i), "now")
	}
	close(tools)
	close(disk)
}

// TestWatchersMayWrite: a watcher may call Put.
func TestWatchersMayWrite(t *testing.T) {
	t.Parallel()
	a := newNode(t, "a")
	a.Watch(func(key string, value []byte) {
		if key == "ping" {
			a.Put("pong", value)
		}
	})
	a.Put("ping", []byte("7"))
	a.expect(t, "pong", "7")
}

// TestPage checks what the reference page says.
func TestPage(t *testing.T) {
	page := clustertest.OpenPage(t)
	n := engine.Names{Tenant: "TENANT", Node: "NODE"}
	page.Names(engine.SharedBucket, n.Key("NAME"), n.Shared())
	page.Says(fmt.Sprintf("%d MiB; %d KiB of content each, %d records", maxBytes>>20, MaxValue>>10, MaxRecords), "for 7 days")
	page.Shows(record{Key: "stop.north", Version: 1794744000000000, Node: "north", Value: []byte("{}")})
	page.Explains(record{})
	if deletedTTL != 7*24*time.Hour {
		t.Error("the page names another time")
	}
}

func FuzzParse(f *testing.F) {
	key := seal.Key(bytes.Repeat([]byte("k"), 32))
	good, _ := record{Key: "stop.north", Version: 7, Node: "north", Value: []byte("{}")}.sign(key)
	f.Add(good, true)
	f.Add(good[:40], false)
	f.Add([]byte(`{"key":"a","version":1e30}`), true)
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		if sign { // what a broken node may write
			data = key.Seal("record", data)
		}
		r, err := parse(key, "", data)
		if err == nil && (checkKey(r.Key) != nil || r.Version > maxVersion || len(r.Value) > MaxValue || r.Deleted != (r.Value == nil)) {
			t.Errorf("accepted %+v", r)
		}
		if err == nil && !sign && !bytes.Equal(data, key.Seal("record", data[seal.Size:])) {
			t.Error("accepted without a signature")
		}
	})
}
