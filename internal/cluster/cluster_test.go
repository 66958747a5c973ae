package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/streams"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestMain runs more tests at a time than there are processors: most of them wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		flag.Set(f.Name, "6")
	}
	os.Exit(m.Run())
}

// testNode is a node: a Cluster, and the parts that it needs.
type testNode struct {
	t       *testing.T
	cluster *Cluster
	stop    func()

	mu        sync.Mutex
	manifests map[ferrule.Kind]*ferrule.Manifest
	elsewhere map[string]*ferrule.Device
	remote    map[string]*ferrule.Manifest
	handlers  map[string]ferrule.Handler
	moved     []string
	serve     ferrule.Handler
}

func (s *testNode) PutRemote(dev *ferrule.Device, manifest *ferrule.Manifest, remote ferrule.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.elsewhere[dev.ID], s.remote[dev.ID], s.handlers[dev.ID] = dev, manifest, remote
}

func (s *testNode) RemoveRemote(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.elsewhere, id)
}

func (s *testNode) Manifest(kind ferrule.Kind) (*ferrule.Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.manifests[kind]; m != nil {
		return m, nil
	}
	return nil, os.ErrNotExist
}

// plainOverlays add only the effect that must be there.
type plainOverlays struct{}

func (plainOverlays) Apply(_ string, _ ferrule.Kind, _ string, m *ferrule.Manifest) *ferrule.Manifest {
	out := *m
	out.Tools = append([]ferrule.Tool(nil), m.Tools...)
	for i := range out.Tools {
		if out.Tools[i].Effect == "" {
			out.Tools[i].Effect = ferrule.Changes
		}
	}
	return &out
}

func (plainOverlays) MatchesDevice(string) bool { return false }

// noJournal is empty.
type noJournal struct{}

func (noJournal) Lines(ctx context.Context, _ uint64, _ int) (ferrule.JournalLines, error) {
	<-ctx.Done()
	return ferrule.JournalLines{}, ctx.Err()
}

func (noJournal) Holds(uint64, string) (bool, error) { return true, nil }

// node starts a node.
func node(t *testing.T, name string, cfg Config) *testNode {
	t.Helper()
	return nodeWith(t, name, cfg, noJournal{}, t.TempDir())
}

// nodeWith starts a node with a journal and a data directory.
func nodeWith(t *testing.T, name string, cfg Config, j streams.Journal, dir string, change ...func(*Parts)) *testNode {
	t.Helper()
	s := &testNode{
		t: t, manifests: make(map[ferrule.Kind]*ferrule.Manifest), elsewhere: make(map[string]*ferrule.Device),
		remote: make(map[string]*ferrule.Manifest), handlers: make(map[string]ferrule.Handler),
	}
	cfg.Node = name
	if cfg.Secret == "" {
		cfg.Secret = filepath.Join("testdata", "secret")
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	parts := Parts{
		Config: cfg, Dir: filepath.Join(dir, "cluster"), Fleet: s, Overlays: plainOverlays{}, Manifests: s, Journal: j,
		Serve: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) { return s.serve(ctx, call) },
		Moved: func(id string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.moved = append(s.moved, id)
		},
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("at", name),
	}
	for _, fn := range change {
		fn(&parts)
	}
	c, err := New(parts)
	if err != nil {
		t.Fatal(err)
	}
	s.cluster = c
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(s.stop)
	return s
}

// putDevice gives a node a device.
func (s *testNode) putDevice(id, model string, state ferrule.State) *ferrule.Device {
	m := &ferrule.Manifest{Model: model, Version: "1", Operations: []ferrule.Operation{ferrule.ReadResource, ferrule.Subscribe}, Tools: []ferrule.Tool{
		{Name: "look", Effect: ferrule.Reads}, {Name: "move"},
	}}
	kind, err := m.Kind()
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.manifests[kind] = m
	s.mu.Unlock()
	dev := &ferrule.Device{
		ID: id, Address: "usb:" + id, Transport: "serial", Protocol: "mcpu", Node: s.cluster.cfg.Node, Kind: kind, Model: model,
		State: state, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}
	s.cluster.Put(dev, plainOverlays{}.Apply("", "", "", m))
	return dev
}

func (s *testNode) seen(id string) *ferrule.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.elsewhere[id]
}

// callTool calls a tool of a device of another node, like the pipeline.
func (s *testNode) callTool(ctx context.Context, id, tool string) (*ferrule.Result, error) {
	s.mu.Lock()
	dev, manifest, handle := s.elsewhere[id], s.remote[id], s.handlers[id]
	s.mu.Unlock()
	if dev == nil {
		return nil, ferrule.UnknownDevice(id)
	}
	call := &ferrule.Call{ID: "c", Device: id, Tool: tool, Target: ferrule.Target{Device: dev, Manifest: manifest, Tool: manifest.Tool(tool)}}
	return handle(ctx, call)
}

// lookup returns the record of a device.
func (s *testNode) lookup(id string) *ferrule.Device {
	return s.cluster.registry.Lookup(s.t.Context(), id)
}

// storedEvents returns how many events are in the shared stream, or 0 if that is unknown.
func (s *testNode) storedEvents() uint64 {
	e := s.cluster.engine.Load()
	if e == nil {
		return 0
	}
	stream, err := e.Shared.Stream(s.t.Context(), engine.EventsStream)
	if err != nil {
		return 0
	}
	return stream.CachedInfo().State.Msgs
}

// echo answers with the tool's name.
func echo(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf("%q", call.Tool))}, nil
}

func TestTwoNodes(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	b.serve = echo
	start := time.Now()
	b.putDevice("robot", "arm", ferrule.StateOnline)
	wait.For(t, "a sees robot", func() bool { return a.seen("robot") != nil })
	t.Logf("seen after %v", time.Since(start))
	dev := a.seen("robot")
	if dev.Node != "b" || dev.Epoch != 1 || dev.Model != "arm" || dev.State != ferrule.StateOnline {
		t.Errorf("got %+v", dev)
	}
	start = time.Now()
	const n = 500
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
		result, err := a.callTool(ctx, "robot", "look")
		cancel()
		if err != nil || string(result.Value) != `"look"` {
			t.Fatalf("got %v, %v", result, err)
		}
	}
	t.Logf("%v a call", time.Since(start)/n)

	b.stop()
	wait.For(t, "a sees that robot is offline", func() bool { return a.seen("robot").State == ferrule.StateOffline })
}

func TestEmbedded(t *testing.T) {
	cfg := DefaultConfig()
	start := time.Now()
	a := node(t, "a", cfg)
	wait.For(t, "working", func() bool { return a.cluster.State().Working })
	t.Logf("working after %v", time.Since(start))
	a.putDevice("robot", "arm", ferrule.StateOnline)
	wait.For(t, "recorded", func() bool { return a.lookup("robot") != nil })
}
