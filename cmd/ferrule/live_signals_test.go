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
		for len(a.updates) > 0 {
			<-a.updates
		}
	}
	began := time.Now()
	time.Sleep(2500 * time.Millisecond)
	counts := make([]int, len(agents))
	for i, a := range agents {
		counts[i] = len(a.updates)
	}
	most := int(time.Since(began)/time.Second) + 1
	if slices.Min(counts) < 2 || slices.Max(counts) > most {
		t.Errorf("%d notifications, want from 2 to %d", counts, most)
	}
	for _, a := range agents {
		if err := a.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: volts}); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
	time.Sleep(300 * time.Millisecond) // the newer version of MCP has no answer
	for _, a := range agents {
		for len(a.updates) > 0 {
			<-a.updates
		}
	}
	time.Sleep(1500 * time.Millisecond)
	for _, a := range agents {
		if n := len(a.updates); n > 0 {
			t.Errorf("%s was notified %d times after it unsubscribed", a.name, n)
		}
	}
}
