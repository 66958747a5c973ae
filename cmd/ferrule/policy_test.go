package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
)

// TestPolicyBuiltin: the gateway's own tools are under the policy, and the calls within
// call_many are decided one by one.
func TestPolicyBuiltin(t *testing.T) {
	fleet := startSim(t, sim.Config{Count: 1})
	g := startGateway(t, map[string]string{"robot": fleet.Addrs()[0]}, unmeasured, func(c *config.Config) { c.Policy.Preset = "read-only" })
	g.online("robot")
	if _, err := g.call(ferrule.GatewayID, "status", `{}`, ample); err != nil {
		t.Errorf("status: %v", err)
	}
	for tool, want := range map[string]string{"gpio_read": `"succeeded":1`, "gpio_write": "the preset read-only permits only what reads"} {
		args := `{"pin":2}`
		if tool == "gpio_write" {
			args = `{"pin":2,"value":true}`
		}
		got, err := g.call(ferrule.GatewayID, "call_many", `{"devices":["robot"],"tool":"`+tool+`","arguments":`+args+`}`, ample)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("call_many of %s: %s, %v; want %s", tool, got, err, want)
		}
		_, err = g.call("robot", tool, args, ample)
		if (err == nil) != (tool == "gpio_read") || err != nil && ferrule.AsError(err).Code != ferrule.Denied {
			t.Errorf("%s: %v", tool, err)
		}
	}
	// A tool for people that changes something is hidden from agents, and open to people.
	label := &ferrule.Call{Device: ferrule.GatewayID, Tool: "label_device", Args: json.RawMessage(`{"device":"robot","set":{"room":"hall"}}`)}
	for role, want := range map[ferrule.Role]bool{ferrule.Agent: false, ferrule.Person: true, ferrule.Unverified: false} {
		call := *label
		call.Principal = ferrule.Principal{Role: role, Name: "anna"}
		if _, err := g.Pipeline.Handle(context.Background(), &call); (err == nil) != want {
			t.Errorf("label_device as %s: %v", role, err)
		}
	}
	// The gateway's own calls are not subject to the policy.
	write := &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "lease"}, Device: "robot", Tool: "gpio_write", Args: json.RawMessage(`{"pin":2,"value":false}`)}
	if _, err := g.Pipeline.Handle(context.Background(), write); err != nil {
		t.Errorf("the gateway: %v", err)
	}
}
