package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestLiveSignals checks that subscribed agents are notified of measurements once a
// second, in both versions of MCP, over HTTP and stdio, on the gateway and in a process
// that has joined it, and no longer after they unsubscribe.
func TestLiveSignals(t *testing.T) {
	const volts = "ferrule://devices/robot/signals/volts_volts"
	dir := t.TempDir()
	overlay := "match: {device: robot}\npolls:\n  volts: {tool: adc_read, args: {pin: 34}, every: 200ms}\n"
	if err := os.WriteFile(filepath.Join(dir, "robot.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	board := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": board.Addrs()[0]}, func(c *config.Config) { c.Overlays = dir })
	g.online("robot")
	var agents []*testAgent
	for _, mcpVersion := range mcpVersions {
		agents = append(agents, dialAgent(t, g, mcpVersion, "/mcp"), dialAgent(t, g, mcpVersion, "/mcp/devices/robot"), pipeAgent(t, g, mcpVersion), joinedAgent(t, g, mcpVersion, "robot"))
	}
	var told builtin.LatestOutput
	wait.For(t, "measurements can be read", func() bool {
		got, err := agents[0].ReadResource(t.Context(), &mcp.ReadResourceParams{URI: volts})
		return err == nil && json.Unmarshal([]byte(got.Contents[0].Text), &told) == nil && len(told.Signals) == 1 && len(told.Signals[0].Earlier) > 0
	})
	if s := told.Signals[0]; told.Device != "robot" || s.Name != "volts_volts" || time.Since(s.Time) > ample {
		t.Errorf("it reads %+v", told)
	}
	// A slow machine may deliver several notifications at once. So all are counted, from the
	// beginning.
	began := time.Now()
	for _, a := range agents {
		if err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: volts}); err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
	}
	for _, a := range agents {
		select {
		case uri := <-a.updates:
			if uri != volts {
				t.Errorf("%s was notified of %s", a.name, uri)
			}
		case <-time.After(ample):
			t.Fatalf("%s is not notified", a.name)
		}
		wait.For(t, a.name+" has the signal in its list", func() bool { return slices.Contains(a.uris(), volts) })
	}
	for _, a := range agents {
		wait.For(t, a.name+" is notified again", func() bool { return len(a.updates) >= 2 })
		if n, most := 1+len(a.updates), int(time.Since(began)/time.Second)+1; n > most {
			t.Errorf("%s was notified %d times, want at most %d", a.name, n, most)
		}
	}
	for _, a := range agents {
		if err := a.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: volts}); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
	// The newer version of MCP has no answer, so the last notifications may come later.
	wait.For(t, "no agent is notified for more than a second", func() bool {
		for _, a := range agents {
			for len(a.updates) > 0 {
				<-a.updates
			}
		}
		time.Sleep(1500 * time.Millisecond)
		return !slices.ContainsFunc(agents, func(a *testAgent) bool { return len(a.updates) > 0 })
	})
}
