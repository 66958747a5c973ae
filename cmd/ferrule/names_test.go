package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestRenamed checks that agents which know a device by its old name go on using it, in
// both versions of MCP, and that its measurements move with it.
func TestRenamed(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	boards := startSim(t, sim.Config{})
	g := startGateway(t, nil, func(c *config.Config) { c.Devices.TCP = []config.TCPDevice{{Address: boards.Addrs()[0]}} })
	const old = "sim-board"
	g.online(old)
	points := func(device string) int {
		answer, err := g.call(ferrule.GatewayID, "history", `{"device":"`+device+`","signals":["light"],"resolution":"raw"}`, ample)
		var out builtin.HistoryOutput
		if err != nil || json.Unmarshal([]byte(answer), &out) != nil {
			return 0
		}
		return len(out.Signals[0].Points)
	}
	wait.For(t, "measurements are recorded", func() bool { return points(old) > 0 })
	var agents []*testAgent
	for _, mcpVersion := range mcpVersions {
		agents = append(agents, dialAgent(t, g, mcpVersion, "/mcp"), dialAgent(t, g, mcpVersion, "/mcp/devices/"+old))
	}
	before := points(old)
	if err := g.person("rename_device", `{"device":"sim-board","name":"robot"}`); err != nil {
		t.Fatal(err)
	}
	for i, a := range agents {
		tool := old + "__gpio_read"
		if i%2 == 1 {
			tool = "gpio_read"
		}
		a.mustUse(tool, `{"pin":2}`, nil)
		if i%2 == 0 {
			wait.For(t, "the new name is listed", func() bool {
				list := a.list()
				return slices.Contains(list, "robot__gpio_read") && !slices.Contains(list, tool)
			})
		}
	}
	late := dialAgent(t, g, legacy, "/mcp/devices/"+old)
	late.mustUse("gpio_read", `{"pin":2}`, nil)
	if err := late.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateOf("robot")}); err != nil {
		t.Error(err)
	}
	if err := agents[0].Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateOf(old)}); err == nil {
		t.Error("an agent subscribed to what never changes")
	}
	for _, name := range []string{old, "robot"} {
		if n := points(name); n < before {
			t.Errorf("%s has %d points, before %d", name, n, before)
		}
	}
	if dev := g.device("robot"); dev.State != ferrule.StateOnline || !slices.Equal(dev.Aliases, []string{old}) {
		t.Errorf("got %+v", dev)
	}
}
