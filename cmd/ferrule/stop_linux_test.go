package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

var (
	stops       = flag.Int("stops", 12, "how many rounds TestStop has")
	stopCallers = flag.Int("stop-callers", 5, "how many callers TestStop has for each device on each node")
)

// striker is a device that records when it changed something, and how often it was
// stopped.
type striker struct {
	addr string

	mu      sync.Mutex
	strikes map[string][]time.Time // by token
	last    time.Time
	offs    int
}

func newStriker(t *testing.T) *striker {
	t.Helper()
	s := &striker{strikes: make(map[string][]time.Time)}
	dev := thing.New("striker", "1.0.0")
	thing.Tool(dev, "strike", "Strike once", func(_ context.Context, in struct {
		Token string `json:"token"`
	}) (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = time.Now()
		s.strikes[in.Token] = append(s.strikes[in.Token], s.last)
		return "done", nil
	})
	thing.Tool(dev, "off", "Stop at once", func(context.Context, struct{}) (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.offs++
		return "off", nil
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- dev.ServeTCP(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s
}

func (s *striker) count() (strikes, offs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.strikes), s.offs
}

// stopNode is a gateway with strikers, which can be restarted.
type stopNode struct {
	*testGateway
	cfg      config.Config
	strikers map[string]*striker
}

// newStopNode starts a node with strikers called NAME-0 and so on.
func newStopNode(t *testing.T, name string, count int, change func(*config.Config)) *stopNode {
	t.Helper()
	n := &stopNode{cfg: testConfig(), strikers: make(map[string]*striker)}
	n.cfg.Listen, n.cfg.Overlays = "127.0.0.1:0", t.TempDir()
	n.cfg.Polling.Enabled, n.cfg.Calls.Refused, n.cfg.Cluster.Node = false, 0, name
	stop := `{"match":{"protocol":"mcpu"},"stop":{"tool":"off"}}`
	if err := os.WriteFile(filepath.Join(n.cfg.Overlays, "stop.json"), []byte(stop), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		id, s := fmt.Sprintf("%s-%d", name, i), newStriker(t)
		n.strikers[id] = s
		n.cfg.Devices.TCP = append(n.cfg.Devices.TCP, config.TCPDevice{Name: id, Address: s.addr})
	}
	change(&n.cfg)
	if err := n.cfg.Check(); err != nil {
		t.Fatal(err)
	}
	n.start(t, t.TempDir())
	return n
}

func (n *stopNode) start(t *testing.T, data string) {
	t.Helper()
	g, err := gateway.New(gateway.Parts{Config: n.cfg, Data: data, Version: version(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n.testGateway = runGateway(t, g, data)
}

// command calls a tool of the gateway.
func (n *stopNode) command(role ferrule.Role, tool, args string) (out builtin.StopOutput, err error) {
	result, err := n.Pipeline.Handle(context.Background(), &ferrule.Call{
		Principal: ferrule.Principal{Role: role, Name: "test"}, Device: ferrule.GatewayID, Tool: tool, Args: json.RawMessage(args),
	})
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(result.Value, &out)
}

// halt stops everything, as an agent.
func (n *stopNode) halt() builtin.StopOutput {
	n.t.Helper()
	out, err := n.command(ferrule.Agent, ferrule.StopTool, `{"reason":"a test"}`)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

func (n *stopNode) resume() {
	n.t.Helper()
	if _, err := n.command(ferrule.Person, "resume_devices", `{}`); err != nil {
		n.t.Fatal(err)
	}
}

func (n *stopNode) strike(device, token string) error {
	_, err := n.call(device, "strike", fmt.Sprintf(`{"token":%q}`, token), 20*time.Second)
	return err
}

func (n *stopNode) isStopped() bool { return n.Stop.Stopped().Everything() }

// strikes are calls to all strikers from all nodes, all the time.
type strikes struct {
	name     string // makes its tokens different from others
	strikers map[string]*striker
	workers  int
	done     chan struct{}
	wg       sync.WaitGroup
	ran      atomic.Int64 // succeeded
	denied   []atomic.Int64

	mu       sync.Mutex
	outcomes map[string]error // of calls that did not succeed
}

func startStrikes(nodes []*stopNode, each int) *strikes {
	s := &strikes{name: rand.Text(), strikers: make(map[string]*striker), done: make(chan struct{}), outcomes: make(map[string]error)}
	for _, n := range nodes {
		for id, device := range n.strikers {
			s.strikers[id] = device
		}
	}
	s.workers = len(nodes) * len(s.strikers) * each
	s.denied = make([]atomic.Int64, s.workers)
	w := 0
	for _, n := range nodes {
		for id := range s.strikers {
			for range each {
				worker := w
				w++
				s.wg.Go(func() { s.run(n, id, worker) })
			}
		}
	}
	return s
}

func (s *strikes) run(n *stopNode, device string, worker int) {
	for i := 0; ; i++ {
		select {
		case <-s.done:
			return
		default:
		}
		token := fmt.Sprintf("%s-%d-%d", s.name, worker, i)
		err := n.strike(device, token)
		if err == nil {
			s.ran.Add(1)
			continue
		}
		s.mu.Lock()
		s.outcomes[token] = err
		s.mu.Unlock()
		if ferrule.AsError(err).Code == ferrule.Denied {
			s.denied[worker].Add(1)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// runs waits until strikes succeed.
func (s *strikes) runs(t *testing.T) {
	t.Helper()
	before := s.ran.Load()
	wait.For(t, "strikes succeed", func() bool { return s.ran.Load() > before+int64(s.workers/4) })
}

// allDenied waits until every worker was denied once more.
func (s *strikes) allDenied(t *testing.T) {
	t.Helper()
	before := make([]int64, s.workers)
	for i := range s.denied {
		before[i] = s.denied[i].Load()
	}
	wait.For(t, "every strike is denied", func() bool {
		for i := range s.denied {
			if s.denied[i].Load() == before[i] {
				return false
			}
		}
		return true
	})
}

// after returns what was struck after a time, with the last time.
func (s *strikes) after(from time.Time) (tokens []string, last time.Time) {
	for _, device := range s.strikers {
		device.mu.Lock()
		if device.last.After(last) {
			last = device.last
		}
		if device.last.After(from) {
			for token, all := range device.strikes {
				if all[len(all)-1].After(from) {
					tokens = append(tokens, token)
				}
			}
		}
		device.mu.Unlock()
	}
	return tokens, last
}

// end ends the strikes, and checks that what certainly did not run did not, and that
// nothing ran twice.
func (s *strikes) end(t *testing.T) {
	t.Helper()
	close(s.done)
	s.wg.Wait()
	for id, device := range s.strikers {
		device.mu.Lock()
		for token, all := range device.strikes {
			if len(all) > 1 {
				t.Errorf("%s: %s ran %d times", id, token, len(all))
			}
			if err := s.outcomes[token]; err != nil && !ferrule.AsError(err).MayHaveRun() {
				t.Errorf("%s: %s ran, and its caller was told: %v", id, token, err)
			}
		}
		device.mu.Unlock()
	}
}

// TestStop stops three nodes under load, round after round: what a device does after the
// acknowledgment was sent before, and reported. Then without NATS, and across a restart.
func TestStop(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	servers := natscluster.Start(t, natscluster.Options{})
	join := func(c *config.Config) {
		c.Cluster.Mode, c.Cluster.Tenant, c.Cluster.Secret, c.Cluster.Shards = "join", "acme", servers.Secret, 4
		c.Cluster.Servers = strings.Split(servers.URLsAs("acme-operator"), ",")
	}
	var nodes []*stopNode
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, newStopNode(t, name, 2, join))
	}
	for _, n := range nodes {
		for _, other := range nodes {
			for id := range other.strikers {
				wait.For(t, "a device of another node is online", func() bool { return n.device(id).State == ferrule.StateOnline })
			}
		}
		wait.For(t, "nodes see each other", func() bool { return len(n.Cluster.State().Nodes) == 2 })
	}
	load := startStrikes(nodes, *stopCallers) // for each of 6 devices on 3 nodes
	defer func() { load.end(t) }()
	var slowest, late, lastChange time.Duration
	lateStrikes, unacknowledged := 0, 0
	for round := range *stops {
		load.runs(t)
		_, before := nodes[0].strikers["a-0"].count()
		began := time.Now()
		out := nodes[round%3].halt()
		acknowledged := time.Now()
		if len(out.Acknowledged)+len(out.Unreached) != 2 {
			t.Fatalf("round %d: %+v", round, out)
		}
		load.allDenied(t)
		tokens, last := load.after(acknowledged)
		if len(out.Unreached) > 0 { // a busy node took longer than a stop waits
			unacknowledged++
			tokens = nil
		}
		lastChange = max(lastChange, last.Sub(began))
		slowest, lateStrikes = max(slowest, acknowledged.Sub(began)), lateStrikes+len(tokens)
		if len(tokens) > out.MayHaveRun {
			t.Errorf("round %d: %d changes after the acknowledgment, which reports %d", round, len(tokens), out.MayHaveRun)
		}
		for _, token := range tokens {
			late = max(late, last.Sub(acknowledged))
			load.mu.Lock()
			if err := load.outcomes[token]; err == nil || !ferrule.AsError(err).MayHaveRun() {
				t.Errorf("round %d: struck after the acknowledgment, and its caller was told: %v", round, err)
			}
			load.mu.Unlock()
		}
		if _, offs := nodes[0].strikers["a-0"].count(); offs != before+1 {
			t.Errorf("round %d: the stop tool was called %d times", round, offs-before)
		}
		if _, err := nodes[0].command(ferrule.Agent, "resume_devices", `{}`); err == nil {
			t.Fatal("an agent resumed")
		}
		nodes[(round+1)%3].resume()
		for _, n := range nodes {
			wait.For(t, "resumed", func() bool { return !n.isStopped() })
		}
	}
	figure.AtMost(t, "time from a stop to the last change", lastChange, time.Second)
	figure.AtMost(t, "stops that were not acknowledged in time", unacknowledged, 0)
	if unacknowledged == *stops {
		t.Error("no stop was acknowledged")
	}
	t.Logf("%d rounds, %d strikes: acknowledged after at most %v; %d strikes were sent before and done up to %v after the acknowledgment", *stops, load.ran.Load(), slowest, lateStrikes, late)

	load.runs(t)
	for _, s := range servers.Servers {
		s.Kill()
	}
	began := time.Now()
	out := nodes[0].halt()
	figure.AtMost(t, "time of a stop without NATS", time.Since(began), 5*time.Second)
	if len(out.Acknowledged) != 0 {
		t.Errorf("without NATS: %+v", out)
	}
	if err := nodes[0].strike("a-0", "without"); err == nil || ferrule.AsError(err).Code != ferrule.Denied {
		t.Errorf("without NATS: %v", err)
	}
	if err := nodes[1].strike("b-0", "own"); err != nil {
		t.Errorf("a node that has not heard of it: %v", err)
	}
	for _, s := range servers.Servers {
		s.Start()
	}
	for _, n := range nodes {
		wait.For(t, "stopped when NATS is back", n.isStopped)
	}
	load.allDenied(t)

	fresh := newStopNode(t, "d", 1, join) // it learns of the stop before it serves others
	wait.For(t, "a new node has joined", func() bool { return fresh.Cluster.State().Working })
	if !fresh.isStopped() {
		t.Error("a node that joined is not stopped")
	}

	data := nodes[2].data
	again := &stopNode{cfg: nodes[2].cfg, strikers: nodes[2].strikers}
	load.end(t)
	load = startStrikes(nodes[:2], 1)
	nodes[2].stop()
	again.start(t, data)
	if !again.isStopped() {
		t.Error("not stopped after a restart")
	}
	again.online("c-0")
	if err := again.strike("c-0", "restarted"); err == nil || ferrule.AsError(err).Code != ferrule.Denied {
		t.Errorf("after a restart: %v", err)
	}
	wait.For(t, "the node is back", func() bool { return again.Cluster.State().Working })
	again.resume()
	for _, n := range append(nodes[:2], again) {
		wait.For(t, "resumed", func() bool { return !n.isStopped() })
	}
}

// TestStopOnFullDisk: while the disk is full and changes cannot be recorded, a stop is
// acknowledged, calls stop tools, and is still there after a restart.
func TestStopOnFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	n := newStopNode(t, "a", 1, func(c *config.Config) { c.Cluster.Store = 16 })
	n.stop()
	n.start(t, dir)
	n.online("a-0")
	if err := n.strike("a-0", "1"); err != nil {
		t.Fatal(err)
	}
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	fill := func() {
		for err := error(nil); err == nil; {
			_, err = ballast.Write(make([]byte, 512))
		}
	}
	fill()
	refused := errors.New("not refused")
	wait.For(t, "changes cannot be recorded", func() bool {
		fill()
		refused = n.strike("a-0", "2")
		return refused != nil
	})
	if e := ferrule.AsError(refused); !strings.Contains(e.Message, "cannot be recorded") {
		t.Fatal(refused)
	}
	_, before := n.strikers["a-0"].count()
	out := n.halt()
	if _, after := n.strikers["a-0"].count(); after != before+1 || !n.isStopped() || strings.Contains(strings.Join(out.Notes, ""), "restart") {
		t.Errorf("called %d times; %+v", after-before, out)
	}
	ballast.Truncate(0) // for the rest of the gateway
	n.stop()
	n.start(t, dir)
	if !n.isStopped() {
		t.Error("not stopped after a restart")
	}
}

// TestAgentStops: an agent sees the tool that stops devices in its list and can call it,
// and cannot resume, also not by guessing the name. It is told who stopped and why, and so
// are those who look at the gateway.
func TestAgentStops(t *testing.T) {
	n := newStopNode(t, "a", 1, func(*config.Config) {})
	n.online("a-0")
	var mu sync.Mutex
	watched := ""
	unwatch, err := n.Watch("", func(e ferrule.Event) {
		mu.Lock()
		defer mu.Unlock()
		watched += string(e.Type) + " " + e.Device + " " + e.Reason + "\n"
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unwatch()
	for _, version := range []string{legacy, modern} {
		agent, err := newPlainAgent(t.Context(), &http.Client{}, n.URL()+"/mcp", version)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := agent.send(t.Context(), http.MethodPost, "tools/list", "", request(version, 7, "tools/list", ""))
		if err != nil {
			t.Fatal(err)
		}
		if list, err := wholeBody(resp); err != nil || !strings.Contains(list, `"gateway__stop_devices"`) || strings.Contains(list, "resume_devices") {
			t.Errorf("%v: %s", err, list)
		}
		if out, err := agent.call(t.Context(), "gateway__stop_devices", `{"devices":["a-0"],"reason":"too hot"}`); err != nil || !strings.Contains(out, "a-0 is stopped: ") {
			t.Fatalf("%v: %s", err, out)
		}
		_, err = agent.call(t.Context(), "a-0__strike", `{"token":"x"}`)
		if err == nil || !strings.Contains(err.Error(), "a-0 is stopped by agent:") || !strings.Contains(err.Error(), ": too hot; nothing was sent") {
			t.Errorf("got %v", err)
		}
		for _, name := range []string{"resume_devices", "gateway__resume_devices"} {
			if _, err := agent.call(t.Context(), name, `{}`); err == nil || len(n.Stop.Stopped().Orders) == 0 {
				t.Errorf("%s: the agent resumed", name)
			}
		}
		for path, want := range map[string]string{
			"/healthz": `"stopped":true`,
			"/metrics": "\nferrule_stopped_devices 1\n",
		} {
			resp, err := http.Get(n.URL() + path)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := wholeBody(resp); err != nil || !strings.Contains(body, want) {
				t.Errorf("%s: %v: %s", path, err, body[:min(len(body), 500)])
			}
		}
		n.resume()
		if err := n.strike("a-0", "after "+version); err != nil {
			t.Error(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(watched, "stopped a-0 stopped by agent:") || !strings.Contains(watched, "resumed a-0 resumed by person:test\n") {
		t.Errorf("watched %s", watched)
	}
}
