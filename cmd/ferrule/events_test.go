package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// startToys runs simulated voice toys until the test ends or stop is called.
func startToys(t *testing.T, count int, misbehave string) (toys *sim.Toys, stop func()) {
	t.Helper()
	toys, err := sim.ListenToys(sim.Config{Addr: "127.0.0.1:0", Count: count, Misbehave: misbehave})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- toys.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the simulation: %v", err)
		}
	})
	t.Cleanup(stop)
	return toys, stop
}

// atToys returns the transport of toys that listen.
func atToys(boards ...tcp.Board) transport.Connector {
	cfg := tcp.DefaultConfig()
	cfg.Boards, cfg.Protocols = boards, []string{xiaozhi.Name}
	return tcp.New(cfg)
}

// withToys runs a gateway with toys.
func withToys(t *testing.T, cfg config.Config, toys ...tcp.Board) *testGateway {
	t.Helper()
	data := t.TempDir()
	g, err := gateway.New(gateway.Parts{
		Config: cfg, Data: data, Version: version(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Connectors: []transport.Connector{atToys(toys...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return runGateway(t, g, data)
}

// lamp makes a toy do something that it sends a notification about.
func (g *testGateway) lamp(id string) {
	g.t.Helper()
	if _, err := g.call(id, "self.lamp.turn_on", `{}`, ample); err != nil {
		g.t.Fatal(err)
	}
}

func stateOf(device string) string { return "ferrule://devices/" + device + "/state" }

// subscribes subscribes to the state of a device. The newer version of MCP has no
// answer, so do is called until the agent is notified.
func (a *testAgent) subscribes(device string, do func()) {
	a.t.Helper()
	if err := a.Subscribe(context.Background(), &mcp.SubscribeParams{URI: stateOf(device)}); err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
	for end := time.Now().Add(ample); ; {
		do()
		select {
		case uri := <-a.updates:
			if uri != stateOf(device) {
				a.t.Errorf("%s was notified of %s", a.name, uri)
			}
			return
		case <-time.After(300 * time.Millisecond):
		}
		if time.Now().After(end) {
			a.t.Fatalf("%s is not notified", a.name)
		}
	}
}

// updated waits until an agent is notified of a changed state.
func (a *testAgent) updated(device string) {
	a.t.Helper()
	select {
	case uri := <-a.updates:
		if uri != stateOf(device) {
			a.t.Errorf("%s was notified of %s", a.name, uri)
		}
	case <-time.After(ample):
		a.t.Fatalf("%s is not notified", a.name)
	}
}

// calm waits until no more updates arrive.
func calm(agents []*testAgent) {
	for quiet := 0; quiet < 10; quiet++ {
		time.Sleep(50 * time.Millisecond)
		for _, a := range agents {
			for len(a.updates) > 0 {
				<-a.updates
				quiet = 0
			}
		}
	}
}

// state reads the state of a device.
func (a *testAgent) state(device string) (s builtin.DeviceStateOutput) {
	a.t.Helper()
	got, err := a.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: stateOf(device)})
	if err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
	if err := json.Unmarshal([]byte(got.Contents[0].Text), &s); err != nil {
		a.t.Fatal(err)
	}
	return s
}

// watched collects the events that a person sees.
type watched struct {
	mu     sync.Mutex
	events []ferrule.Event
}

// watches watches a gateway through its socket.
func watches(t *testing.T, data, device string) *watched {
	t.Helper()
	socket, err := control.SocketPath(data)
	if err != nil {
		t.Fatal(err)
	}
	client := control.NewClient(socket)
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{}
	ended := make(chan error, 1)
	go func() {
		ended <- client.Watch(ctx, control.Subscription{Device: device, Event: func(e ferrule.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		}, Missed: func(int) {}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("watching: %v", err)
		}
		client.Close()
	})
	return w
}

// sees reports whether an event of a device was seen.
func (w *watched) sees(device string, what ferrule.EventType) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.events, func(e ferrule.Event) bool { return e.Device == device && e.Type == what })
}

// joinedAgent returns an agent of a process that has joined a gateway with a device.
func joinedAgent(t *testing.T, g *testGateway, mcpVersion, device string) *testAgent {
	t.Helper()
	cfg := testConfig()
	cfg.Listen = ""
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	agent := pipeTo(t, mcpVersion, func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		return gateway.ServeStdio(ctx, gateway.Parts{Config: cfg, Data: g.data, Version: version(), Log: log}, in, out)
	})
	wait.For(t, "the agent that has joined sees "+device, func() bool { return slices.Contains(agent.uris(), stateOf(device)) })
	return agent
}

// TestEvents checks the notifications of a toy: agents that have subscribed receive
// them, in both versions of MCP, over HTTP and stdio, on the gateway and in a process
// that has joined it; others do not. People who watch see them too. The same holds when
// the toy goes offline and comes back. A pending toy is seen by people only.
func TestEvents(t *testing.T) {
	toys, stop := startToys(t, 2, "notifies")
	cfg := testConfig()
	cfg.Listen = "127.0.0.1:0"
	g := withToys(t, cfg, tcp.Board{Address: toys.Addrs()[0], Name: "toy"}, tcp.Board{Address: toys.Addrs()[1], Name: "stranger", Pending: true})
	g.online("toy")
	g.online("stranger")
	people := watches(t, g.data, "")
	var told, others []*testAgent
	for _, mcpVersion := range mcpVersions {
		told = append(told, dialAgent(t, g, mcpVersion, "/mcp"), dialAgent(t, g, mcpVersion, "/mcp/devices/toy"), pipeAgent(t, g, mcpVersion), joinedAgent(t, g, mcpVersion, "toy"))
		others = append(others, dialAgent(t, g, mcpVersion, "/mcp"), pipeAgent(t, g, mcpVersion))
	}
	for _, a := range told {
		a.subscribes("toy", func() { g.lamp("toy") })
	}
	calm(told)

	before := time.Now()
	g.lamp("toy")
	for _, a := range told {
		a.updated("toy")
		s := a.state("toy")
		if s.State != "online" || len(s.Notifications) != 1 || s.Notifications[0].Method != "notifications/state_changed" ||
			string(s.Notifications[0].Params) != `{"newState":"idle","oldState":"connecting"}` || s.Notifications[0].Time.Before(before) {
			t.Errorf("%s reads %+v", a.name, s)
		}
	}
	wait.For(t, "people see the notification", func() bool { return people.sees("toy", ferrule.Notified) })
	calm(told)

	if err := told[0].Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: stateOf("toy")}); err != nil {
		t.Fatal(err)
	}
	g.lamp("toy")
	told[1].updated("toy")
	calm(told[1:])
	if n := len(told[0].updates); n > 0 {
		t.Errorf("%s was notified %d times after it unsubscribed", told[0].name, n)
	}

	stop()
	for _, a := range told[1:] {
		a.updated("toy")
		wait.For(t, a.name+" reads why it is offline", func() bool {
			s := a.state("toy")
			return s.State == "offline" && s.Reason != "" && len(s.Notifications) == 1
		})
	}
	wait.For(t, "people see that both have gone", func() bool { return people.sees("toy", ferrule.Gone) && people.sees("stranger", ferrule.Gone) })
	for _, a := range others {
		if n := len(a.updates); n > 0 {
			t.Errorf("%s has not subscribed and was notified %d times", a.name, n)
		}
		if _, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: stateOf("stranger")}); err == nil {
			t.Errorf("%s reads of a pending device", a.name)
		}
	}
}

// TestTalkativeToy checks that a toy that sends notifications all the time can still be
// called, and that agents and people get only a few per second.
func TestTalkativeToy(t *testing.T) {
	toys, _ := startToys(t, 1, "talkative")
	cfg := testConfig()
	cfg.Listen = "127.0.0.1:0"
	g := withToys(t, cfg, tcp.Board{Address: toys.Addrs()[0], Name: "toy"})
	g.online("toy")
	// A slow machine may deliver several notifications at once. So all are counted, from the
	// beginning.
	began := time.Now()
	var agents []*testAgent
	for _, mcpVersion := range mcpVersions {
		a := dialAgent(t, g, mcpVersion, "/mcp")
		a.subscribes("toy", func() {})
		agents = append(agents, a)
	}
	people := watches(t, g.data, "toy")
	slowest := time.Duration(0)
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		start := time.Now()
		g.lamp("toy")
		slowest = max(slowest, time.Since(start))
	}
	for _, a := range agents {
		wait.For(t, a.name+" is notified again", func() bool { return len(a.updates) >= 3 })
		if n, seconds := len(a.updates), int(time.Since(began)/time.Second); n > 4*(seconds+1) {
			t.Errorf("%s was notified %d times in %d seconds", a.name, n, seconds)
		}
		if s := a.state("toy"); len(s.Notifications) != 1 || !strings.HasPrefix(string(s.Notifications[0].Params), `{"count":`) {
			t.Errorf("%s reads %+v", a.name, s)
		}
	}
	seen := func() int {
		people.mu.Lock()
		defer people.mu.Unlock()
		return len(people.events)
	}
	wait.For(t, "people see events", func() bool { return seen() >= 3 })
	if n, seconds := seen(), int(time.Since(began)/time.Second); n > 5*(seconds+1)+20 {
		t.Errorf("people saw %d events in %d seconds", n, seconds)
	}
	figure.AtMost(t, "a call to a toy that sends notifications all the time", slowest, time.Second)
}
