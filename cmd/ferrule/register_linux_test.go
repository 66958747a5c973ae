package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// safeBuffer is a buffer that several goroutines may use.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

type salute struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

// greeter returns a tool that greets, and logs that it does.
func greeter(name string, effect ferrule.Effect, called *[]string) builtin.Tool {
	return builtin.Typed(name, "Greets.", effect, func(ctx context.Context, _ *ferrule.Call, in salute) (salute, error) {
		ferrule.Logger(ctx).Info("greeting")
		*called = append(*called, name)
		return salute{"hello " + in.Name}, nil
	})
}

// TestRegister: a tool that is registered while the gateway runs is listed, called, checked
// and recorded like those of a device, until it is removed.
func TestRegister(t *testing.T) {
	log := &safeBuffer{}
	data := t.TempDir()
	cfg := testConfig()
	cfg.Listen = "127.0.0.1:0"
	built, err := gateway.New(gateway.Parts{Config: cfg, Data: data, Version: version(), Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	g := runGateway(t, built, data)
	var mu sync.Mutex
	var events []string
	stop, err := g.Watch("", func(e ferrule.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Type == ferrule.Registered || e.Type == ferrule.Unregistered {
			events = append(events, string(e.Type)+" "+e.Device+" "+strings.Join(e.Tools, ","))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	agent := dialAgent(t, g, "2025-11-25", "/mcp")
	changed := func(what string) {
		t.Helper()
		select {
		case <-agent.tools:
		case <-time.After(wait.Ample):
			t.Errorf("agents were not told that the tool was %s", what)
		}
	}

	var called []string
	removeRead, err := g.Register("greeter", greeter("greet", ferrule.Reads, &called))
	if err != nil {
		t.Fatal(err)
	}
	changed("registered")
	var out salute
	agent.mustUse("greeter__greet", `{"name":"Anna"}`, &out)
	if out.Name != "hello Anna" {
		t.Errorf("got %+v", out)
	}
	if told, err := agent.use(t.Context(), "greeter__greet", `{"nam":"Anna"}`); err != nil || told.code != ferrule.Invalid || !strings.Contains(told.text, "name") {
		t.Errorf("got %+v, %v", told, err)
	}
	var records []ferrule.Entry
	wait.For(t, "both calls are recorded", func() bool { records = g.outcomes("greeter", "greet"); return len(records) == 2 })
	if records[1].Code != ferrule.Invalid {
		t.Errorf("the journal has %+v", records)
	}
	if !strings.Contains(log.String(), "msg=greeting call="+records[0].Call+" device=greeter tool=greet") {
		t.Errorf("the log has no line with the ID of the call:\n%s", log)
	}

	removeWrite, err := g.Register("greeter", greeter("shout", ferrule.Changes, &called))
	if err != nil {
		t.Fatal(err)
	}
	changed("registered")
	if _, err := g.call(ferrule.GatewayID, ferrule.StopTool, `{"reason":"a test"}`, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := g.call("greeter", "shout", `{"name":"Anna"}`, 0); ferrule.AsError(err).Code != ferrule.Denied {
		t.Errorf("a stopped tool returned %v", err)
	}
	limited := ferrule.Principal{Role: ferrule.Agent, Name: "limited", Devices: "lamp-*"}
	if _, err := g.Pipeline.Handle(t.Context(), &ferrule.Call{Principal: limited, Device: "greeter", Tool: "greet", Args: json.RawMessage(`{"name":"x"}`)}); ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("an agent of other devices got %v", err)
	}
	if !slices.Equal(called, []string{"greet"}) {
		t.Errorf("called %q", called)
	}

	for device, tool := range map[string]builtin.Tool{"gateway": greeter("greet", ferrule.Reads, &called), "greeter": greeter("shout", ferrule.Reads, &called), "A b": greeter("greet", ferrule.Reads, &called)} {
		if _, err := g.Register(device, tool); err == nil {
			t.Errorf("%s was accepted", device)
		}
	}
	removeWrite()
	removeRead()
	removeRead()
	wait.For(t, "the list has no tools of the device", func() bool { return !agent.lists("greeter__") })
	if told, err := agent.use(t.Context(), "greeter__greet", `{"name":"Anna"}`); err == nil && !told.isError {
		t.Errorf("a removed tool returned %+v", told)
	}
	want := []string{"registered greeter greet", "registered greeter shout", "unregistered greeter shout", "unregistered greeter greet"}
	wait.For(t, "all events were told", func() bool { mu.Lock(); defer mu.Unlock(); return slices.Equal(events, want) })
	recorded := []string{"greeter: registered 1 tools: greet", "greeter: registered 1 tools: shout", "greeter: removed 1 tools: shout", "greeter: removed 1 tools: greet"}
	wait.For(t, "all is recorded", func() bool { return slices.Equal(g.registrations(), recorded) })
}

// TestRegisterMisbehaves: a registered tool that panics, or does not end, affects its own
// calls only.
func TestRegisterMisbehaves(t *testing.T) {
	g := startGateway(t, nil)
	release := make(chan struct{})
	defer close(release)
	for name, do := range map[string]func(){"fall": func() { panic("a bug") }, "hang": func() { <-release }} {
		tool := builtin.Typed(name, "Misbehaves.", ferrule.Changes, func(context.Context, *ferrule.Call, struct{}) (struct{}, error) {
			do()
			return struct{}{}, nil
		})
		if _, err := g.Register("mischief", tool); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.call("mischief", "fall", `{}`, 0); ferrule.AsError(err).Code != ferrule.Internal || !ferrule.AsError(err).MayHaveRun() {
		t.Errorf("got %v", err)
	}
	if _, err := g.call("mischief", "hang", `{}`, time.Second); ferrule.AsError(err).Code != ferrule.Unanswered {
		t.Errorf("got %v", err)
	}
}
