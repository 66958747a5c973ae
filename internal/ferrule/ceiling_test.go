package ferrule_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestLacks checks which scope an operation needs: p means that the scope of the row is
// enough.
func TestLacks(t *testing.T) {
	robot, gateway := &ferrule.Device{ID: "robot"}, &ferrule.Device{ID: ferrule.GatewayID}
	for column, target := range map[string]struct {
		dev  *ferrule.Device
		op   ferrule.Operation
		tool ferrule.Tool
	}{
		"look":      {robot, ferrule.CallTool, ferrule.Tool{Name: "look", Effect: ferrule.Reads}},
		"move":      {robot, ferrule.CallTool, ferrule.Tool{Name: "move", Effect: ferrule.Changes}},
		"burn":      {robot, ferrule.CallTool, ferrule.Tool{Name: "burn", Effect: ferrule.Endangers}},
		"vague":     {robot, ferrule.CallTool, ferrule.Tool{Name: "vague"}},
		"reset":     {robot, ferrule.CallTool, ferrule.Tool{Name: "reset", Effect: ferrule.Reads, UserOnly: true}},
		"read":      {robot, ferrule.ReadResource, ferrule.Tool{Name: "file:///log", Effect: ferrule.Reads}},
		"prompt":    {robot, ferrule.GetPrompt, ferrule.Tool{Name: "greet", Effect: ferrule.Reads}},
		"complete":  {robot, ferrule.Complete, ferrule.Tool{Name: "greet", Effect: ferrule.Reads}},
		"subscribe": {robot, ferrule.Subscribe, ferrule.Tool{Name: "file:///log", Effect: ferrule.Reads}},
		"adopt":     {gateway, ferrule.CallTool, ferrule.Tool{Name: "adopt_device", Effect: ferrule.Changes, UserOnly: true}},
		"answer":    {gateway, ferrule.CallTool, ferrule.Tool{Name: "answer_approval", Effect: ferrule.Changes, UserOnly: true}},
		"many":      {gateway, ferrule.CallTool, ferrule.Tool{Name: "call_many", Effect: ferrule.Endangers}},
		"stop":      {gateway, ferrule.CallTool, ferrule.Tool{Name: ferrule.StopTool, Effect: ferrule.Changes}},
		"not-stop":  {robot, ferrule.CallTool, ferrule.Tool{Name: ferrule.StopTool, Effect: ferrule.Changes}},
		"not-many":  {robot, ferrule.CallTool, ferrule.Tool{Name: "call_many", Effect: ferrule.Endangers}},
	} {
		const table = `
			#         look move burn vague reset read prompt complete subscribe adopt answer many stop not-stop not-many
			none      -    -    -    -     -     -    -      -        -         -     -      -    p    -        -
			metrics   -    -    -    -     -     -    -      -        -         -     -      -    p    -        -
			read      p    -    -    -     -     p    p      p        p         -     -      p    p    -        -
			change    p    p    -    -     -     p    p      p        p         -     -      p    p    p        -
			endanger  p    p    p    p     -     p    p      p        p         -     p      p    p    p        p
			admin     p    p    p    p     p     p    p      p        p         p     p      p    p    p        p
			unlimited p    p    p    p     p     p    p      p        p         p     p      p    p    p        p`
		var columns []string
		for line := range strings.Lines(table) {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			if words[0] == "#" {
				columns = words
				continue
			}
			var scopes ferrule.Scopes
			if words[0] != "unlimited" {
				scopes, _ = ferrule.ParseScopes(strings.Fields(strings.ReplaceAll(words[0], "none", "")))
			}
			i := slices.Index(columns, column)
			lacks := ferrule.Principal{Scopes: scopes}.Lacks(target.dev, target.op, &target.tool)
			if (lacks == 0) != (words[i] == "p") || lacks != 0 && scopes.Has(lacks) {
				t.Errorf("%s: %s lacks %q", column, words[0], lacks)
			}
		}
	}
}

// forPersons are the tools that docs/reference/agents.md names as those that no agent may call.
var forPersons = []string{
	"answer_approval", "resume_devices", "accept_device", "forget_device", "label_device", "rename_device", "add_token", "rotate_token", "add_person", "set_person_role", "remove_person", "logout_person", "create_login_link",
}

// TestCanCall checks who may call tools for people, and see a device.
func TestCanCall(t *testing.T) {
	admin, all := ferrule.LimitTo(ferrule.ScopeAdmin), ferrule.LimitTo(ferrule.ScopeEndanger|ferrule.ScopeMetrics)
	for _, test := range []struct {
		who         ferrule.Principal
		adopt, open bool // adopt_device; and each of the tools that no agent may call
	}{
		{ferrule.Principal{Role: ferrule.Person}, true, true},
		{ferrule.Principal{Role: ferrule.Agent}, false, false},
		{ferrule.Principal{Role: ferrule.Agent, Scopes: all}, false, false},
		{ferrule.Principal{Role: ferrule.Agent, Scopes: admin}, true, false},
		{ferrule.Principal{Role: ferrule.Agent, Scopes: admin, Devices: "lamp"}, false, false},
		{ferrule.Principal{Role: ferrule.Gateway, Scopes: admin}, false, false},
		{ferrule.Principal{Role: ferrule.Unverified, Scopes: admin}, false, false},
	} {
		if got := test.who.CanCall(&ferrule.Tool{Name: "adopt_device", UserOnly: true}); got != test.adopt {
			t.Errorf("%+v: %t", test.who, got)
		}
		for _, name := range forPersons {
			if got := test.who.CanCall(&ferrule.Tool{Name: name, UserOnly: true}); got != test.open {
				t.Errorf("%+v %s: %t", test.who, name, got)
			}
		}
		if !test.who.CanCall(&ferrule.Tool{Name: "look"}) {
			t.Errorf("%+v cannot look", test.who)
		}
	}
	for pattern, want := range map[string]bool{"": true, "lamp": true, "kitchen-*,lamp": true, "l*": true, "*": true, "kitchen-*": false, "lam": false, "[": false} {
		who := ferrule.Principal{Role: ferrule.Person, Devices: pattern}
		if got := who.CanSee(&ferrule.Device{ID: "lamp"}); got != want {
			t.Errorf("%q: %t", pattern, got)
		}
		if !who.CanSee(&ferrule.Device{ID: ferrule.GatewayID}) {
			t.Errorf("%q: the gateway is hidden", pattern)
		}
	}
}
