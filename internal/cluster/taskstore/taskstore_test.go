package taskstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// node is the store of one node.
type node struct {
	*Store
	engine *engine.Engine
	leave  func()
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// join starts a node and waits until it has the bucket.
func join(t *testing.T, cfg engine.Config, dir, name, tenant string, secret []byte) *node {
	t.Helper()
	n := &node{log: &lockedBuffer{}}
	cfg.Node, cfg.Tenant = name, tenant
	var err error
	n.Store, err = New(Options{Names: engine.Names{Tenant: tenant, Node: name}, Secret: secret, Log: slog.New(slog.NewTextHandler(n.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if n.engine, err = engine.Start(cfg, dir, slog.New(slog.DiscardHandler), n.Refresh); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if s, err := n.Open(ctx, n.engine, cfg.Alone()); err == nil {
				s.Run(ctx)
			}
			if ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}()
	n.leave = sync.OnceFunc(func() {
		cancel()
		<-done
		n.engine.Close()
	})
	t.Cleanup(n.leave)
	wait.For(t, name+" has the bucket", func() bool { s, _ := n.current(); return s != nil })
	return n
}

func newTask(id string) *ferrule.Task {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return &ferrule.Task{
		ID: id, Owner: ferrule.Principal{Role: ferrule.Agent, Name: "claude"}, Call: "c-1", Device: "kiln", Tool: "fire", Args: json.RawMessage(`{"c":900}`),
		Node: "a", Boot: "b1", Status: ferrule.TaskWorking, Created: now, Updated: now, TTL: time.Hour,
	}
}

func (n *node) put(t *testing.T, task *ferrule.Task, revision uint64) uint64 {
	t.Helper()
	revision, err := n.Put(t.Context(), task, revision)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func same(t *testing.T, got, want *ferrule.Task) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		t.Errorf("got %.300s\nwant %.300s", g, w)
	}
}

// TestStore: every node reads a record, one of two writers wins, and a deleted record is gone.
func TestStore(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := join(t, cfg, t.TempDir(), "a", "acme", secret), join(t, cfg, t.TempDir(), "b", "acme", secret)
	task := newTask("TASK0001")
	first := a.put(t, task, 0)
	got, revision, err := b.Get(t.Context(), task.ID)
	if err != nil || revision != first {
		t.Fatalf("revision %d, %v", revision, err)
	}
	same(t, got, task)

	got.Status, got.Result = ferrule.TaskCompleted, json.RawMessage(`{"content":[]}`)
	second := b.put(t, got, first)
	if again, err := b.Put(t.Context(), got, first); err != nil || again != second {
		t.Errorf("the same record again: revision %d, %v; want %d", again, err, second)
	}
	task.Message = "firing"
	if _, err := a.Put(t.Context(), task, first); !errors.Is(err, ErrConflict) {
		t.Errorf("an old revision is replaced: %v", err)
	}
	if _, err := a.Put(t.Context(), task, 0); !errors.Is(err, ErrConflict) {
		t.Errorf("an existing record is created: %v", err)
	}
	if err := a.Delete(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Get(t.Context(), task.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("after Delete: %v", err)
	}
	for _, id := range []string{"", "*", ">", "TASK0001.x", strings.Repeat("x", 65), "TASK 0001", "UNKNOWN1"} {
		if _, _, err := a.Get(t.Context(), id); !errors.Is(err, ErrUnknown) {
			t.Errorf("Get(%q): %v", id, err)
		}
	}
	if _, err := a.Put(t.Context(), newTask("*.>"), 0); err == nil {
		t.Error("a wildcard is an ID")
	}
}

// TestLarge: a result that does not fit into a message is kept too, and one that is larger
// than the limit is refused.
func TestLarge(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := join(t, cfg, t.TempDir(), "a", "acme", secret), join(t, cfg, t.TempDir(), "b", "acme", secret)
	random := rand.NewChaCha8([32]byte{})
	large := func(size int) json.RawMessage {
		data := make([]byte, size)
		random.Read(data)
		text, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	task := newTask("LARGE001")
	revision := a.put(t, task, 0)
	for _, size := range []int{partSize / 2, partSize, 5 << 20} {
		task.Result = large(size)
		revision = a.put(t, task, revision)
		got, now, err := b.Get(t.Context(), task.ID)
		if err != nil || now != revision {
			t.Fatalf("%d bytes: revision %d, %v", size, now, err)
		}
		same(t, got, task)
	}
	task.Result = large(MaxRecord)
	if _, err := a.Put(t.Context(), task, revision); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d bytes: %v", len(task.Result), err)
	}
}

// TestForged: neither another tenant nor another client of NATS can read or write a record.
func TestForged(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a := join(t, cfg, t.TempDir(), "a", "acme", secret)
	task := newTask("SECRET01")
	task.Result = json.RawMessage(`{"content":"confidential"}`)
	revision := a.put(t, task, 0)
	raw, _, err := a.engine.LastValue(t.Context(), engine.TasksBucket, "acme.SECRET01")
	if err != nil || len(raw) == 0 {
		t.Fatal(err)
	}
	for name, other := range map[string]*node{
		"another tenant": join(t, cfg, t.TempDir(), "a", "globex", secret),
		"another secret": join(t, cfg, t.TempDir(), "b", "acme", bytes.ToUpper(secret)),
	} {
		if got, _, err := other.Get(t.Context(), task.ID); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s reads %+v, %v", name, got, err)
		}
	}
	// A copy of a record is not one of another task or tenant.
	publish := func(key string, data []byte) {
		t.Helper()
		if _, err := a.engine.Shared.PublishMsg(t.Context(), &nats.Msg{Subject: a.engine.KeySubject(engine.TasksBucket, key), Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	flipped := bytes.Clone(raw)
	flipped[len(flipped)-1] ^= 1
	for i, data := range [][]byte{raw, flipped, raw[:5], []byte(`{"id":"FORGED"}`)} {
		id := fmt.Sprint("FORGED0", i)
		publish("acme."+id, data)
		if got, _, err := a.Get(t.Context(), id); !errors.Is(err, ErrUnknown) {
			t.Errorf("forgery %d is %+v, %v", i, got, err)
		}
	}
	seen := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go a.Watch(ctx, func(t *ferrule.Task, _ uint64) { seen <- t.ID })
	a.put(t, newTask("SECRET02"), 0)
	got := map[string]bool{<-seen: true, <-seen: true}
	if !got["SECRET01"] || !got["SECRET02"] {
		t.Errorf("the watch has %v", got)
	}
	if !strings.Contains(a.log.String(), "no node of this tenant wrote") {
		t.Error("a forged record is not reported")
	}
	if _, now, err := a.Get(t.Context(), task.ID); err != nil || now != revision {
		t.Errorf("revision %d, %v", now, err)
	}
}

// TestExpires: the record of a task that has ended is gone after its time to live, for readers
// at once and then in the bucket. One that has not ended stays.
func TestExpires(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a := join(t, cfg, t.TempDir(), "a", "acme", secret)
	task := newTask("BRIEF001")
	task.TTL = 3 * time.Second
	revision := a.put(t, task, 0)
	open := newTask("OPEN0001")
	open.TTL = time.Millisecond
	a.put(t, open, 0)
	task.Status = ferrule.TaskCompleted
	a.put(t, task, revision)
	if _, _, err := a.Get(t.Context(), task.ID); err != nil && time.Since(task.Created) < task.TTL {
		t.Fatal(err)
	}
	wait.For(t, "unknown", func() bool {
		_, _, err := a.Get(t.Context(), task.ID)
		return errors.Is(err, ErrUnknown)
	})
	if time.Since(task.Created) < task.TTL {
		t.Error("it was gone too early")
	}
	wait.For(t, "not in the bucket", func() bool {
		data, _, err := a.engine.LastValue(t.Context(), engine.TasksBucket, "acme.BRIEF001")
		return err == nil && len(data) == 0
	})
	if _, _, err := a.Get(t.Context(), open.ID); err != nil {
		t.Errorf("the record of an open task: %v", err)
	}
}

// TestRestart: a single node has its records after a restart, and none while the store is
// closed.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task := newTask("DURABLE1")
	a := join(t, engine.DefaultConfig(), dir, "a", "home", secret)
	revision := a.put(t, task, 0)
	a.leave()
	if _, err := a.Put(t.Context(), newTask("DURABLE2"), 0); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Put without a store: %v", err)
	}
	if _, _, err := a.Get(t.Context(), task.ID); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Get without a store: %v", err)
	}
	b := join(t, engine.DefaultConfig(), dir, "a", "home", secret)
	got, now, err := b.Get(t.Context(), task.ID)
	if err != nil || now != revision {
		t.Fatalf("revision %d, %v; want %d", now, err, revision)
	}
	same(t, got, task)
}

// TestFull: new tasks are refused before the bucket is full, so that others can end.
func TestFull(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a := join(t, cfg, t.TempDir(), "a", "acme", secret)
	task := newTask("FULL0001")
	revision := a.put(t, task, 0)
	open, _ := a.current()
	open.limit = 1
	wait.For(t, "refused", func() bool {
		_, err := a.Put(t.Context(), newTask("FULL0002"), 0)
		return errors.Is(err, ErrFull)
	})
	// A large result takes the space that the outcomes of others need.
	noise := make([]byte, 2*smallRecord)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	task.Status, task.Result = ferrule.TaskCompleted, jsonOf(t, noise)
	if _, err := a.Put(t.Context(), task, revision); !errors.Is(err, ErrFull) {
		t.Errorf("a large result: %v", err)
	}
	task.Result = json.RawMessage(`{}`)
	a.put(t, task, revision)
}

// TestFilledAtOnce: results that come between two measurements of the bucket count too.
func TestFilledAtOnce(t *testing.T) {
	a := join(t, clustertest.OneServer(t), t.TempDir(), "a", "acme", secret)
	wait.For(t, "measured", func() bool {
		open, _ := a.current()
		return open.measure(t.Context()) == nil
	})
	open, _ := a.current()
	open.limit = 8 * smallRecord
	noise := make([]byte, 2*smallRecord)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	var err error
	stored := 0
	for i := range 8 {
		task := newTask(fmt.Sprintf("ONCE000%d", i))
		revision, full := a.Put(t.Context(), task, 0)
		if full != nil {
			err = full
			break
		}
		task.Status, task.Result = ferrule.TaskCompleted, jsonOf(t, noise)
		if _, err = a.Put(t.Context(), task, revision); err != nil {
			break
		}
		stored++
	}
	if !errors.Is(err, ErrFull) || stored == 0 || stored > 4 {
		t.Errorf("%d results are stored, then %v", stored, err)
	}
}

func jsonOf(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzUnseal: no bytes of another client of NATS are a record.
func FuzzUnseal(f *testing.F) {
	head, _, err := seal(secret, "FUZZ0001", []byte(`{"id":"FUZZ0001"}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(head, []byte{})
	f.Add([]byte{format, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, []byte{4})
	f.Add([]byte{format, 255}, []byte{})
	other := []byte("another secret")
	f.Fuzz(func(t *testing.T, head, part []byte) {
		var rest [][]byte
		if len(part) > 0 {
			rest = append(rest, part)
		}
		if text, err := unseal(other, "FUZZ0001", head, rest); err == nil {
			t.Errorf("%q is valid: %q", head, text)
		}
		if n, err := parts(head); err == nil && n > 0 {
			partKey("FUZZ0001", head, n)
		}
	})
}
