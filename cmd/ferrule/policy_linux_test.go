package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
)

// TestReloadPolicy: rules take effect for connected agents, all or nothing. Nothing is
// permitted because a file is broken or gone.
func TestReloadPolicy(t *testing.T) {
	fleet := startSim(t, sim.Config{Count: 1})
	r := newReloadable(t, openLoopback+"policy: {preset: read-only}\ndevices: {tcp: [{address: '"+fleet.Addrs()[0]+"', name: robot}]}\n").start()
	r.until("robot", ferrule.StateOnline)
	agent, err := newPlainAgent(t.Context(), http.DefaultClient, r.url, legacy)
	if err != nil {
		t.Fatal(err)
	}
	// try calls the tool that changes something; denied is part of the expected refusal.
	try := func(denied string) {
		t.Helper()
		got := ""
		text, err := agent.call(t.Context(), "robot__gpio_write", `{"pin":2,"value":true}`)
		if err != nil {
			got = err.Error() + string(text)
		}
		if (denied == "") != (err == nil) || !strings.Contains(got, denied) {
			t.Errorf("got %q, want %q", got, denied)
		}
		if _, err := agent.call(t.Context(), "robot__gpio_read", `{"pin":2}`); err != nil {
			t.Errorf("reading: %v", err)
		}
	}
	try("the preset read-only permits only what reads")

	permit := "permit (principal is Agent, action == Action::\"call\", resource in Device::\"robot\");\n"
	r.write("policies/house.cedar", permit)
	r.want(0, "Changed:\n  policy: preset read-only, 1 rule and 0 tests in "+filepath.Join(r.dir, "policies")+"\n", "reload")
	r.want(0, "Nothing has changed.\n", "reload")
	try("")

	// A mistake changes nothing, whatever it is.
	for text, says := range map[string]string{
		"permit (principal": "house.cedar:1: syntax error",
		"permit (principal, action, resource) when { context.unknown };": "house.cedar:1: attribute `unknown`",
	} {
		r.write("policies/house.cedar", text)
		r.want(exitNotRun, says, "reload")
		try("")
	}
	forbid := permit + "\n@id(\"not pin 2\")\nforbid (principal is Agent, action, resource == Tool::\"robot/gpio_write\")\nwhen { context.args.pin == 2 };\n"
	r.write("policies/house.cedar", forbid)
	r.write("policies/house.test.yaml", "- {who: claude, device: robot, tool: gpio_write, args: {pin: 2}, expect: permit}\n")
	r.want(exitNotRun, `house.test.yaml:1: expected permit, got forbid for agent:claude calling gpio_write of robot: the rule "not pin 2" (house.cedar:3) forbids it`, "reload")
	try("")

	r.write("policies/house.test.yaml", "- {who: claude, device: robot, tool: gpio_write, args: {pin: 2}, expect: forbid}\n")
	r.want(0, "2 rules and 1 test in", "reload")
	try(`the rule \"not pin 2\" (house.cedar:3) forbids it`)
	r.want(0, "forbid: the rule \"not pin 2\" (house.cedar:3) forbids it\n\nhouse.cedar:3\n@id(\"not pin 2\")\nforbid", "policy", "explain", "claude", "robot", "gpio_write", "pin=2", "value=true")
	r.want(0, "permit: the rule house.cedar:1 permits it\n", "policy", "explain", "claude", "robot", "gpio_write", "pin=3", "value=true")
	r.want(0, "forbid: the rule \"not pin 2\" (house.cedar:3) could not be evaluated", "policy", "explain", "claude", "robot", "gpio_write", "value=true")
	r.want(0, `"verdict":"permit"`, "policy", "explain", "person:anna", "robot", "gpio_write", "pin=2", "--json")
	r.want(exitNotRun, `robot has no tool "fly"`, "policy", "explain", "claude", "robot", "fly")

	// The rules are gone, which is not the same as no rules.
	if err := os.Rename(filepath.Join(r.dir, "policies"), filepath.Join(r.dir, "gone")); err != nil {
		t.Fatal(err)
	}
	r.want(exitNotRun, "policies does not exist", "reload")
	try("forbids it")
	r.write("policies/README", "none")
	r.want(0, "Changed:\n  policy: preset read-only\n", "reload")
	try("the preset read-only permits only what reads")
}
