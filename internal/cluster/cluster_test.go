package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// site is one node in a test: a bus, and what stands around it.
type site struct {
	t    *testing.T
	bus  *Cluster
	stop func()

	mu        sync.Mutex
	manifests map[ferrule.Kind]*ferrule.Manifest
	elsewhere map[string]*ferrule.Device
	laid      map[string]*ferrule.Manifest
	ways      map[string]ferrule.Handler
	moved     []string
	serve     ferrule.Handler
}

// The site is all that a bus needs.
func (s *site) PutRemote(dev *ferrule.Device, laid *ferrule.Manifest, way ferrule.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.elsewhere[dev.ID], s.laid[dev.ID], s.ways[dev.ID] = dev, laid, way
}

func (s *site) RemoveRemote(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.elsewhere, id)
}

func (s *site) Manifest(kind ferrule.Kind) (*ferrule.Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.manifests[kind]; m != nil {
		return m, nil
	}
	return nil, os.ErrNotExist
}

// plainOverlays lay nothing on anything but the effect that must be there.
type plainOverlays struct{}

func (plainOverlays) Apply(_ string, _ ferrule.Kind, _ string, m *ferrule.Manifest) *ferrule.Manifest {
	laid := *m
	laid.Tools = append([]ferrule.Tool(nil), m.Tools...)
	for i := range laid.Tools {
		if laid.Tools[i].Effect == "" {
			laid.Tools[i].Effect = ferrule.Changes
		}
	}
	return &laid
}

func (plainOverlays) MatchesDevice(string) bool { return false }

// noJournal has no records.
type noJournal struct{}

func (noJournal) Lines(ctx context.Context, _ uint64, _ int) (ferrule.JournalLines, error) {
	<-ctx.Done()
	return ferrule.JournalLines{}, ctx.Err()
}

func (noJournal) Holds(uint64, string) (bool, error) { return true, nil }

// node starts a node.
func node(t *testing.T, name string, cfg Config) *site {
	t.Helper()
	return nodeWith(t, name, cfg, noJournal{}, t.TempDir())
}

// nodeWith starts a node with a journal, and files in a directory.
func nodeWith(t *testing.T, name string, cfg Config, j Journal, dir string, change ...func(*Parts)) *site {
	t.Helper()
	s := &site{
		t: t, manifests: make(map[ferrule.Kind]*ferrule.Manifest), elsewhere: make(map[string]*ferrule.Device),
		laid: make(map[string]*ferrule.Manifest), ways: make(map[string]ferrule.Handler),
	}
	cfg.Node = name
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	parts := Parts{
		Config: cfg, Dir: filepath.Join(dir, "bus"), Fleet: s, Overlays: plainOverlays{}, Manifests: s, Journal: j,
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
	b, err := New(parts)
	if err != nil {
		t.Fatal(err)
	}
	s.bus = b
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx); err != nil {
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

// has gives a node a device that answers.
func (s *site) has(id, model string, state ferrule.State) *ferrule.Device {
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
		ID: id, Address: "usb:" + id, Transport: "serial", Protocol: "mcpu", Node: s.bus.cfg.Node, Kind: kind, Model: model,
		State: state, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}
	s.bus.Put(dev, plainOverlays{}.Apply("", "", "", m))
	return dev
}

func (s *site) sees(id string) *ferrule.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.elsewhere[id]
}

// calls calls a tool of a device of another node, as the road does.
func (s *site) calls(ctx context.Context, id, tool string) (*ferrule.Result, error) {
	s.mu.Lock()
	dev, laid, way := s.elsewhere[id], s.laid[id], s.ways[id]
	s.mu.Unlock()
	if dev == nil {
		return nil, ferrule.UnknownDevice(id)
	}
	call := &ferrule.Call{ID: "c", Device: id, Tool: tool, Target: ferrule.Target{Device: dev, Manifest: laid, Tool: laid.Tool(tool)}}
	return way(ctx, call)
}

// echo answers with the tool's name.
func echo(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf("%q", call.Tool))}, nil
}

func eventually(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// oneServer is a real server in this process that nodes join. Tests that have one run
// at the same time: they mostly wait.
func oneServer(t *testing.T) Config {
	t.Helper()
	t.Parallel()
	s := startServer(t, &server.Options{Port: server.RANDOM_PORT, StoreDir: t.TempDir(), JetStreamDomain: "hub"})
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{s.ClientURL()}, 2, 1
	return cfg
}

// startServer starts a real server in this process, which ends with the test.
func startServer(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	options.Host, options.JetStream, options.NoSigs = "127.0.0.1", true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("not ready")
	}
	return s
}

func TestTwoNodes(t *testing.T) {
	cfg := oneServer(t)
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	b.serve = echo
	start := time.Now()
	b.has("robot", "arm", ferrule.StateOnline)
	eventually(t, 10*time.Second, "a sees robot", func() bool { return a.sees("robot") != nil })
	t.Logf("seen after %v", time.Since(start))
	dev := a.sees("robot")
	if dev.Node != "b" || dev.Epoch != 1 || dev.Model != "arm" || dev.State != ferrule.StateOnline {
		t.Errorf("got %+v", dev)
	}
	start = time.Now()
	const n = 500
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		result, err := a.calls(ctx, "robot", "look")
		cancel()
		if err != nil || string(result.Value) != `"look"` {
			t.Fatalf("got %v, %v", result, err)
		}
	}
	t.Logf("%v a call", time.Since(start)/n)

	b.stop()
	eventually(t, 5*time.Second, "a sees that robot is offline", func() bool { return a.sees("robot").State == ferrule.StateOffline })
}

func TestEmbedded(t *testing.T) {
	cfg := DefaultConfig()
	start := time.Now()
	a := node(t, "a", cfg)
	eventually(t, 5*time.Second, "working", func() bool { return a.bus.State().Working })
	t.Logf("working after %v", time.Since(start))
	a.has("robot", "arm", ferrule.StateOnline)
	eventually(t, 5*time.Second, "recorded", func() bool {
		e, err := a.bus.home.Load().registry.get(t.Context(), "robot")
		return err == nil && e.device != nil
	})
}
