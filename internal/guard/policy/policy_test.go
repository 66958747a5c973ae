package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// load loads rules from files, given as a name and its text in turn.
func load(t testing.TB, cfg Config, files ...string) (*Policy, error) {
	t.Helper()
	cfg.Dir = t.TempDir()
	if cfg.Preset == "" {
		cfg.Preset = Careful
	}
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(cfg.Dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(cfg)
}

func mustLoad(t testing.TB, cfg Config, files ...string) *Policy {
	t.Helper()
	p, err := load(t, cfg, files...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// call returns a call by an agent, or person:NAME, of a tool with an effect.
func call(who, device, tool string, effect ferrule.Effect, args string) *ferrule.Call {
	c := &ferrule.Call{
		Principal: ParsePrincipal(who), Device: device, Tool: tool,
		Target: ferrule.Target{
			Device: &ferrule.Device{ID: device, Kind: "k1", Model: "lamp", Transport: "serial", Node: "attic", Labels: map[string]string{"room": "kitchen"}},
			Tool:   &ferrule.Tool{Name: tool, Effect: effect},
		},
	}
	if args != "" {
		d := json.NewDecoder(strings.NewReader(args))
		d.UseNumber()
		if err := d.Decode(&c.DecodedArgs); err != nil {
			panic(err)
		}
	}
	return c
}

const house = `
// Lamps are harmless.
permit (principal is Agent, action == Action::"call", resource in Label::"room=kitchen");

@id("ask for the door")
permit (principal is Agent, action == Action::"call", resource == Tool::"door/open")
when { context.approved };
`

func TestHouse(t *testing.T) {
	p := mustLoad(t, Config{Preset: ReadOnly}, "house.cedar", house)
	door := call("claude", "door", "open", ferrule.Endangers, "")
	door.Target.Device.Labels = nil
	closing := call("claude", "door", "close", ferrule.Changes, "")
	closing.Target.Device.Labels = nil
	for _, test := range []struct {
		call *ferrule.Call
		want ferrule.Ruling
		rule string
	}{
		{call("claude", "lamp", "switch", ferrule.Changes, ""), ferrule.Permit, "house.cedar:3"},
		{call("claude", "lamp", "state", ferrule.Reads, ""), ferrule.Permit, "house.cedar:3"},
		{call("claude", "heater", "state", ferrule.Reads, ""), ferrule.Permit, "house.cedar:3"},
		{door, ferrule.Ask, "house.cedar:5"},
		{closing, ferrule.Forbid, ""},
		{call("person:anna", "door", "open", ferrule.Endangers, ""), ferrule.Permit, "preset people"},
	} {
		got := p.Decide(test.call)
		if got.Ruling != test.want || got.Rule != test.rule || got.Reason == "" {
			t.Errorf("%s %s/%s: got %+v, want %s by %q", test.call.Principal, test.call.Device, test.call.Tool, got, test.want, test.rule)
		}
		shows := p.Shows(test.call.Principal, test.call.Target.Device, test.call.Operation, test.call.Target.Tool)
		if shows != (test.want != ferrule.Forbid) {
			t.Errorf("%s %s/%s: shown: %v, but %s", test.call.Principal, test.call.Device, test.call.Tool, shows, test.want)
		}
	}
}

// TestPresets compares what the presets decide without Cedar with their rules, in all
// combinations.
func TestPresets(t *testing.T) {
	// A rule that matches nobody makes every call go through Cedar.
	never := `forbid (principal, action, resource) when { resource.name == "none" };`
	combinations := 0
	for _, preset := range presetNames {
		cfg := Config{Preset: preset, Agents: map[string]string{"opened": Open, "careful": Careful, "reader": ReadOnly}, Forwarders: []string{"call_many"}, Always: []string{"stop"}}
		fast, slow := mustLoad(t, cfg), mustLoad(t, cfg, "never.cedar", never)
		for _, who := range []string{"someone", "opened", "careful", "reader", "local/x", "person:anna", "person:reader"} {
			for _, effect := range []ferrule.Effect{"", ferrule.Reads, ferrule.Changes, ferrule.Endangers, "unknown"} {
				for _, op := range []ferrule.Operation{ferrule.CallTool, ferrule.ReadResource, ferrule.GetPrompt, ferrule.Complete, ferrule.Subscribe, ferrule.Unsubscribe, "unknown"} {
					for _, tool := range []string{"lamp/switch", "gateway/call_many", "gateway/stop", "lamp/stop"} {
						device, name, _ := strings.Cut(tool, "/")
						c := call(who, device, name, effect, "")
						c.Operation = op
						a, b := fast.Decide(c), slow.Decide(c)
						if a.Ruling != b.Ruling || a.Rule != b.Rule {
							t.Errorf("%s %s %s %q %q: %+v without Cedar, %+v with it", preset, who, tool, effect, op, a, b)
						}
						if s := fast.Shows(c.Principal, c.Target.Device, op, c.Target.Tool); s != (a.Ruling != ferrule.Forbid) || s != slow.Shows(c.Principal, c.Target.Device, op, c.Target.Tool) {
							t.Errorf("%s %s %s %q %q: shown: %v, but %s", preset, who, tool, effect, op, s, a.Ruling)
						}
						combinations++
					}
				}
			}
		}
	}
	t.Logf("%d combinations", combinations)
	p := mustLoad(t, Config{Preset: Careful, Agents: map[string]string{"reader": ReadOnly}, Forwarders: []string{"call_many"}, Always: []string{"stop"}})
	for text, want := range map[string]ferrule.Ruling{
		"claude reads": ferrule.Permit, "claude changes": ferrule.Permit, "claude endangers": ferrule.Ask, "person:a endangers": ferrule.Permit,
		"reader reads": ferrule.Permit, "reader changes": ferrule.Forbid, "reader endangers": ferrule.Forbid,
	} {
		who, effect, _ := strings.Cut(text, " ")
		if got := p.Decide(call(who, "lamp", "x", ferrule.Effect(effect), "")); got.Ruling != want {
			t.Errorf("%s: got %+v, want %s", text, got, want)
		}
	}
	for _, name := range []string{"call_many", "stop"} {
		if got := p.Decide(call("reader", ferrule.GatewayID, name, ferrule.Endangers, "")); got.Ruling != ferrule.Permit {
			t.Errorf("%s of the gateway: %+v", name, got)
		}
	}
}

// TestFailsClosed has what must never be permitted.
func TestFailsClosed(t *testing.T) {
	open := mustLoad(t, Config{Preset: Open})
	failing := mustLoad(t, Config{Preset: Open}, "a.cedar", `forbid (principal, action, resource in Device::"lamp") when { context.args.level > 50 };`)
	full := func() *ferrule.Call { return call("claude", "lamp", "set", ferrule.Changes, `{"level": 5}`) }
	change := func(fn func(*ferrule.Call)) *ferrule.Call { c := full(); fn(c); return c }
	for name, test := range map[string]struct {
		policy *Policy
		call   *ferrule.Call
	}{
		"no policy":          {nil, full()},
		"no call":            {open, nil},
		"no device":          {open, change(func(c *ferrule.Call) { c.Target.Device = nil })},
		"device without ID":  {open, change(func(c *ferrule.Call) { c.Target.Device.ID = "" })},
		"no tool":            {open, change(func(c *ferrule.Call) { c.Target.Tool = nil })},
		"unknown effect":     {open, change(func(c *ferrule.Call) { c.Target.Tool.Effect = "harmless" })},
		"unknown operation":  {open, change(func(c *ferrule.Call) { c.Operation = "delete" })},
		"no role":            {open, change(func(c *ferrule.Call) { c.Principal.Role = "" })},
		"unknown role":       {open, change(func(c *ferrule.Call) { c.Principal.Role = "root" })},
		"unverified":         {open, change(func(c *ferrule.Call) { c.Principal.Role = ferrule.Unverified })},
		"missing argument":   {failing, change(func(c *ferrule.Call) { c.DecodedArgs = nil })},
		"null argument":      {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": null}`)},
		"argument as text":   {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": "5"}`)},
		"argument as list":   {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": [5]}`)},
		"too many places":    {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": 50.00001}`)},
		"fraction":           {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": 49.5}`)},
		"huge":               {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": 1e400}`)},
		"too high":           {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": 51}`)},
		"too high, 51.0":     {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": 51.0}`)},
		"too high, exponent": {failing, call("claude", "lamp", "set", ferrule.Changes, `{"level": 5.1e1}`)},
	} {
		if got := test.policy.Decide(test.call); got.Ruling != ferrule.Forbid || got.Reason == "" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if got := failing.Decide(full()); got.Ruling != ferrule.Permit {
		t.Errorf("a call that is in order: %+v", got)
	}
	if got := failing.Decide(call("claude", "other", "set", ferrule.Changes, "")); got.Ruling != ferrule.Permit {
		t.Errorf("a call of another device: %+v", got)
	}
	var none Holder
	if got := none.Decide(full()); got.Ruling != ferrule.Forbid || none.Version() != "" {
		t.Errorf("without a policy: %+v", got)
	}
	gateway := full()
	gateway.Principal = ferrule.Principal{Role: ferrule.Gateway, Name: "poller"}
	if got := failing.Decide(gateway); got.Ruling != ferrule.Permit {
		t.Errorf("the gateway itself: %+v", got)
	}
}

// TestApprover: a rule that requires approval for everything does not require it for giving
// an approval. A rule that forbids it still does.
func TestApprover(t *testing.T) {
	p := mustLoad(t, Config{Preset: Open}, "a.cedar", `forbid (principal, action, resource) unless { context.approved };
forbid (principal == Person::"bob", action, resource == Tool::"gateway/answer_approval");`)
	answer := func(who, device string, userOnly bool) ferrule.Ruling {
		c := call(who, device, "answer_approval", ferrule.Changes, "")
		c.Target.Tool.UserOnly = userOnly
		return p.Decide(c).Ruling
	}
	for _, test := range []struct{ got, want ferrule.Ruling }{
		{answer("person:anna", ferrule.GatewayID, true), ferrule.Permit},
		{answer("person:bob", ferrule.GatewayID, true), ferrule.Forbid},
		{answer("person:anna", ferrule.GatewayID, false), ferrule.Ask},
		{answer("person:anna", "lamp", true), ferrule.Ask},
		{answer("claude", ferrule.GatewayID, true), ferrule.Ask},
	} {
		if test.got != test.want {
			t.Errorf("got %s, want %s", test.got, test.want)
		}
	}
}

// TestArguments has rules about arguments, and calls that they must match or not.
func TestArguments(t *testing.T) {
	for rule, calls := range map[string]map[string]ferrule.Ruling{
		`context.args.t.greaterThan(decimal("21.5"))`: {
			`{"t":21}`: ferrule.Permit, `{"t":21.0}`: ferrule.Permit, `{"t":21.5}`: ferrule.Permit, `{"t":2.1e1}`: ferrule.Permit, `{"t":-3}`: ferrule.Permit,
			`{"t":22}`: ferrule.Forbid, `{"t":21.5001}`: ferrule.Forbid, `{"t":21.50001}`: ferrule.Forbid, `{"t":2200e-2}`: ferrule.Forbid, `{"t":"1"}`: ferrule.Forbid,
			`{}`: ferrule.Forbid, `{"t":922337203685478}`: ferrule.Forbid, `{"t":1e99999999999}`: ferrule.Forbid,
		},
		`context.args.mode == "fast"`: {
			`{"mode":"slow"}`: ferrule.Permit, `{"mode":"fast"}`: ferrule.Forbid, `{"mode":["fast"]}`: ferrule.Forbid, `{"mode":1}`: ferrule.Forbid, `{"mode":{}}`: ferrule.Forbid,
		},
		`context.args.pin == 13`: {
			`{"pin":12}`: ferrule.Permit, `{"pin":13}`: ferrule.Forbid, `{"pin":13.0}`: ferrule.Forbid, `{"pin":1.3e1}`: ferrule.Forbid, `{"pin":130e-1}`: ferrule.Forbid,
			`{"pin":"13"}`: ferrule.Forbid, `{"pin":13.00001}`: ferrule.Forbid, `{"pin":12.5}`: ferrule.Forbid,
		},
		`context.args has pin && context.args.pin == 13`: {
			`{}`: ferrule.Permit, `{"pin":12}`: ferrule.Permit, `{"pin":13}`: ferrule.Forbid, `{"pin":13.00001}`: ferrule.Forbid, `{"pin":null}`: ferrule.Permit,
		},
		`[12, 13].contains(context.args.pin)`: {`{"pin":11}`: ferrule.Permit, `{"pin":13}`: ferrule.Forbid, `{"pin":"13"}`: ferrule.Forbid},
		`context.args.pins.contains(13)`: {
			`{"pins":[11]}`: ferrule.Permit, `{"pins":[]}`: ferrule.Permit, `{"pins":[11,13.0]}`: ferrule.Forbid, `{"pins":13}`: ferrule.Forbid, `{"pins":[12,13.00001]}`: ferrule.Forbid, `{"pins":[null]}`: ferrule.Forbid,
		},
		`context.args.levels.contains(decimal("1.5"))`: {`{"levels":[1]}`: ferrule.Permit, `{"levels":[1,1.50]}`: ferrule.Forbid},
		`context.args.on`:  {`{"on":false}`: ferrule.Permit, `{"on":true}`: ferrule.Forbid, `{"on":1}`: ferrule.Forbid},
		`!context.args.on`: {`{"on":true}`: ferrule.Permit, `{"on":false}`: ferrule.Forbid, `{"on":"true"}`: ferrule.Forbid},
		`context.args.on != true`: {
			`{"on":true}`: ferrule.Permit, `{"on":false}`: ferrule.Forbid, `{"on":"true"}`: ferrule.Forbid,
		},
		`context.args.to.x > 5 || context.args.to.y.lessThan(decimal("0.5"))`: {
			`{"to":{"x":5,"y":1}}`: ferrule.Permit, `{"to":{"x":6,"y":1}}`: ferrule.Forbid, `{"to":{"x":5,"y":0}}`: ferrule.Forbid, `{"to":{"x":5,"y":0.4}}`: ferrule.Forbid, `{"to":{"x":5}}`: ferrule.Forbid, `{"to":5}`: ferrule.Forbid,
		},
		`context.args.file like "/etc/*"`:  {`{"file":"/tmp/a"}`: ferrule.Permit, `{"file":"/etc/a"}`: ferrule.Forbid, `{"file":7}`: ferrule.Forbid},
		`context.args["odd name"] == "x"`:  {`{"odd name":"y"}`: ferrule.Permit, `{"odd name":"x"}`: ferrule.Forbid},
		`context.args.a == context.args.b`: {`{"a":1,"b":2}`: ferrule.Permit, `{"a":1,"b":1.0}`: ferrule.Forbid},
		`if context.args.fast then context.args.speed > 5 else context.args.speed > 10`: {
			`{"fast":true,"speed":5}`: ferrule.Permit, `{"fast":true,"speed":6}`: ferrule.Forbid, `{"fast":false,"speed":6}`: ferrule.Permit,
		},
	} {
		p, err := load(t, Config{Preset: Open}, "a.cedar", "forbid (principal, action, resource) when { "+rule+" };")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		for args, want := range calls {
			if got := p.Decide(call("claude", "lamp", "set", ferrule.Changes, args)); got.Ruling != want {
				t.Errorf("%s with %s: got %+v, want %s", rule, args, got, want)
			}
		}
	}
}

// TestContext has rules about everything else that is in the schema.
func TestContext(t *testing.T) {
	at := time.Date(2026, 11, 28, 22, 15, 0, 0, time.Local) // a Saturday
	c := call("claude", "lamp", "switch", ferrule.Changes, "")
	c.Principal.Auth, c.Principal.User, c.Via = ferrule.AuthStdio, "anna", "cellar"
	c.Target.Device.Aliases, c.Target.Device.Version, c.Target.Device.Protocol = []string{"old"}, "1.2", "mcpu"
	groups := map[string][]string{"helpers": {"claude"}, "family": {"person:anna"}}
	for rule, want := range map[string]bool{
		`(principal == Agent::"claude", action, resource)`:                                                                     true,
		`(principal == Agent::"other", action, resource)`:                                                                      false,
		`(principal == Person::"claude", action, resource)`:                                                                    false,
		`(principal in Group::"helpers", action, resource)`:                                                                    true,
		`(principal in Group::"family", action, resource)`:                                                                     false,
		`(principal in Preset::"open", action, resource)`:                                                                      true,
		`(principal in Preset::"careful", action, resource)`:                                                                   false,
		`(principal in Node::"cellar", action, resource)`:                                                                      true,
		`(principal in Node::"here", action, resource)`:                                                                        false,
		`(principal is Agent in Group::"helpers", action, resource)`:                                                           true,
		`(principal, action == Action::"call", resource)`:                                                                      true,
		`(principal, action in [Action::"call", Action::"read"], resource)`:                                                    true,
		`(principal, action == Action::"read", resource)`:                                                                      false,
		`(principal, action, resource == Tool::"lamp/switch")`:                                                                 true,
		`(principal, action, resource == Tool::"old/switch")`:                                                                  true,
		`(principal, action, resource == Tool::"lamp/off")`:                                                                    false,
		`(principal, action, resource in Device::"lamp")`:                                                                      true,
		`(principal, action, resource in Device::"old")`:                                                                       true,
		`(principal, action, resource in Kind::"k1")`:                                                                          true,
		`(principal, action, resource in Model::"lamp")`:                                                                       true,
		`(principal, action, resource in Label::"room=kitchen")`:                                                               true,
		`(principal, action, resource in Label::"room=hall")`:                                                                  false,
		`(principal, action, resource in Transport::"serial")`:                                                                 true,
		`(principal, action, resource in Node::"attic")`:                                                                       true,
		`(principal, action, resource is Tool in Device::"lamp")`:                                                              true,
		`(principal, action, resource) when { resource.name like "sw*" }`:                                                      true,
		`(principal, action, resource) when { resource.effect == "changes" }`:                                                  true,
		`(principal, action, resource) when { resource.device.version == "1.2" }`:                                              true,
		`(principal, action, resource) when { resource.device.protocol == "mcpu" }`:                                            true,
		`(principal, action, resource) when { resource.device in Model::"lamp" }`:                                              true,
		`(principal, action, resource) when { resource.device == Device::"lamp" }`:                                             true,
		`(principal, action, resource) when { principal.user == "anna" }`:                                                      true,
		`(principal, action, resource) when { principal.auth == "token" }`:                                                     false,
		`(principal, action, resource) when { context.network == "remote" }`:                                                   true,
		`(principal, action, resource) when { context.hour >= 22 }`:                                                            true,
		`(principal, action, resource) when { context.minute > 15 }`:                                                           false,
		`(principal, action, resource) when { context.weekday == "saturday" }`:                                                 true,
		`(principal, action, resource) when { context.time > datetime("2026-11-01") }`:                                         true,
		`(principal, action, resource) when { resource.device.hasTag("room") && resource.device.getTag("room") == "kitchen" }`: true,
		`(principal, action, resource) unless { context.approved }`:                                                            true,
	} {
		p, err := load(t, Config{Preset: Open, Groups: groups, Node: "here"}, "a.cedar", "forbid "+rule+";")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		if got := p.decide(c, at).Ruling != ferrule.Permit; got != want {
			t.Errorf("%s: matches: %v, want %v (%+v)", rule, got, want, p.decide(c, at))
		}
	}
}

// TestNetwork: only a caller that is known to be on this machine is local.
func TestNetwork(t *testing.T) {
	p := mustLoad(t, Config{Preset: Open}, "a.cedar", `forbid (principal, action, resource) when { context.network == "remote" };`)
	for _, test := range []struct {
		auth ferrule.Auth
		via  string
		want ferrule.Ruling
	}{
		{ferrule.AuthStdio, "", ferrule.Permit}, {ferrule.AuthSocket, "", ferrule.Permit}, {ferrule.AuthLoopback, "", ferrule.Permit},
		{ferrule.AuthStdio, "cellar", ferrule.Forbid}, {ferrule.AuthToken, "", ferrule.Forbid}, {ferrule.AuthEndpoint, "", ferrule.Forbid}, {"", "", ferrule.Forbid},
	} {
		c := call("claude", "lamp", "on", ferrule.Changes, "")
		c.Principal.Auth, c.Via = test.auth, test.via
		if got := p.Decide(c); got.Ruling != test.want {
			t.Errorf("%q via %q: got %+v, want %s", test.auth, test.via, got, test.want)
		}
	}
}

// TestLoadErrors has what must not be loaded, with the place of the mistake.
func TestLoadErrors(t *testing.T) {
	groups := map[string][]string{"helpers": {"claude"}, "readers": {"reader"}, "family": {"person:anna"}}
	for _, test := range []struct {
		text string
		want string // after the name of the file
	}{
		{"permit (principal, action, resource", ":1: syntax error"},
		{"// all\n\npermit (principal, action, resource) when { context.args. };", ":3: syntax error"},
		{`permit (principal, action, resource) when { "open };`, ":1: "},
		{"forbid (principal, action, resource)\nwhen {\n  resource.effekt == \"reads\" };", ":3: attribute `effekt`"},
		{"forbid (principal, action, resource)\nwhen { context.our > 5 };", ":2: attribute `our`"},
		{"forbid (principal, action, resource)\nwhen { context.hour > \"5\" };", ":1: unexpected type: expected datetime, or duration, or Long but saw String"},
		{"forbid (principal, action, resource) when { resource.name > 5 };", ":1: unexpected type"},
		{"forbid (principal, action, resource) when { resource.name };", ":1: unexpected type: expected Bool but saw String"},
		{"forbid (principal, action, resource) when { resource.device.getTag(\"room\") == \"hall\" };", ":1: unable to guarantee safety of access to tag"},
		{"forbid (principal == User::\"anna\", action, resource);", ":1: unrecognized entity type `User`"},
		{"forbid (principal, action == Action::\"write\", resource);", ":1: unrecognized action"},
		{"forbid (principal, action, resource is Device);", ":1: unable to find an applicable action"},
		{"forbid (principal in Group::\"robots\", action, resource);", `:1: group "robots" is not in policy.groups`},
		{"forbid (principal, action, resource) when { principal in Group::\"robots\" };", `:1: group "robots" is not in policy.groups`},
		{"forbid (principal in Preset::\"strict\", action, resource);", `:1: unknown preset "strict"`},
		{"forbid (principal, action, resource)\nwhen { resource.effect == \"endanger\" };", `:2: resource.effect is never "endanger"`},
		{"forbid (principal, action, resource) when { [\"sat\"].contains(context.weekday) };", `:1: context.weekday is never "sat"`},
		{"forbid (principal, action, resource)\nwhen { context.args.a > 5 &&\n context.args.a == \"x\" };", ":2: context.args.a is used as a whole number and as text"},
		{"forbid (principal, action, resource) when { context.args.a > 5 && context.args.a.b };", ":1: context.args.a.b is used"},
		{"forbid (principal, action, resource) when { context.args.to == {\"x\": 1} };", ":1: context.args.to is compared with a record"},
		{"forbid (principal, action, resource) when { context.args == {} };", ":1: context.args is compared with a record"},
		{"forbid (principal, action, resource) when { context.args has a || context.args.a > 5 };", ":1: unable to guarantee safety of access to optional attribute"},
		{"forbid (principal, action, resource) when { decimal(context.args.a).lessThan(decimal(\"1.0\")) };", ":1: extension constructors may not be called with non-literal"},
		{"forbid (principal == Agent::\"agent:claude\", action, resource);", `:1: "agent:claude" is never the name of a caller; write Agent::"claude"`},
		{"forbid (principal, action, resource == Tool::\"open\");", `:1: "open" is never a tool; write Tool::"DEVICE/open"`},
		{"forbid (principal, action, resource in Label::\"lamp\");", `:1: "lamp" is never a label`},
		// Rules without effect.
		{"forbid (principal, action, resource);\npermit (principal, action, resource in Device::\"lamp\");", ":2: this rule has no effect: a.cedar:1 already forbids"},
		{"forbid (principal, action, resource == Tool::\"lamp/on\");\n\nforbid (principal, action, resource in Device::\"lamp\");", ":1: this rule has no effect: a.cedar:3 already forbids"},
		{"forbid (principal == Agent::\"claude\", action, resource);\nforbid (principal in Group::\"helpers\", action, resource);", ":1: this rule has no effect: a.cedar:2"},
		{"forbid (principal, action, resource) when { context.hour > 5 };\nforbid (principal, action == Action::\"call\", resource) when { context.hour > 5 };", ":2: this rule has no effect: a.cedar:1"},
		{"forbid (principal, action, resource in Model::\"x\");\nforbid (principal, action, resource in Model::\"x\");", ":2: this rule has no effect: a.cedar:1"},
		{"permit (principal == Agent::\"claude\", action, resource == Tool::\"door/open\") when { context.approved };", ":1: this rule has no effect: the preset careful already permits everything"},
		{"permit (principal in Group::\"helpers\", action, resource);", ":1: this rule has no effect: the preset careful"},
		{"permit (principal is Person, action, resource);", ":1: this rule has no effect: the preset people"},
	} {
		_, err := load(t, Config{Preset: Careful, Groups: groups, Agents: map[string]string{"reader": ReadOnly}}, "a.cedar", test.text)
		if err == nil || !strings.HasPrefix(err.Error(), "a.cedar"+test.want) {
			t.Errorf("%s\ngot  %v\nwant a.cedar%s", test.text, err, test.want)
		}
	}
	// These are valid.
	for _, text := range []string{
		"", "// nothing",
		"permit (principal in Group::\"readers\", action, resource in Device::\"lamp\");",
		"permit (principal is Agent, action, resource in Device::\"lamp\");", // for the reader
		"forbid (principal, action == Action::\"call\", resource in Model::\"x\");\nforbid (principal, action == Action::\"read\", resource in Model::\"x\");",
		"forbid (principal, action, resource in Model::\"x\") when { context.hour > 5 };\nforbid (principal, action, resource in Model::\"x\") when { context.hour < 5 };",
	} {
		if _, err := load(t, Config{Preset: Careful, Groups: groups, Agents: map[string]string{"reader": ReadOnly}}, "a.cedar", text); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

// TestConfigErrors has presets that must be refused.
func TestConfigErrors(t *testing.T) {
	for want, cfg := range map[string]Config{
		`policy.preset: must be open, careful, read-only, got "strict"`:                 {Preset: "strict"},
		`policy.agents: the preset of claude must be`:                                   {Preset: Careful, Agents: map[string]string{"claude": "strict"}},
		`policy.agents: local/claude must not have the preset open, which is milder`:    {Preset: Careful, Agents: map[string]string{"local/claude": Open}},
		`policy.agents: local/claude must not have the preset careful, which is milder`: {Preset: ReadOnly, Agents: map[string]string{"local/claude": Careful}},
		`policy.agents: person:anna is not an agent`:                                    {Preset: Open, Agents: map[string]string{"person:anna": Careful}},
		`policy.agents: agent:claude must be written without agent:`:                    {Preset: Open, Agents: map[string]string{"agent:claude": Careful}},
		`policy.groups: a name must not be empty`:                                       {Preset: Open, Groups: map[string][]string{"": {"a"}}},
	} {
		if _, err := Load(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := Load(Config{Preset: Careful, Agents: map[string]string{"local/claude": ReadOnly, "claude": Open}}); err != nil {
		t.Error(err)
	}
}

// TestDirectory has directories that must be refused: nothing that looks like a rule is
// ignored.
func TestDirectory(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "policies")
	if _, err := Load(Config{Preset: Careful, Dir: missing, Required: true}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a directory that is gone: %v", err)
	}
	if _, err := Load(Config{Preset: Careful, Dir: missing}); err != nil {
		t.Errorf("a directory that need not exist: %v", err)
	}
	if _, err := load(t, Config{}, "a.yaml", ""); err == nil || !strings.Contains(err.Error(), "must end with .test.yaml") {
		t.Errorf("a test with another name: %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Config{Preset: Careful, Dir: dir}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory in it: %v", err)
	}
}

// TestVersion checks that the version changes with every rule and every preset.
func TestVersion(t *testing.T) {
	dir := t.TempDir()
	version := func(cfg Config, text string) string {
		if err := os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Dir = dir
		p, err := Load(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return p.Version()
	}
	seen := make(map[string]string)
	for i, v := range []string{
		version(Config{Preset: Careful}, ""),
		version(Config{Preset: Open}, ""),
		version(Config{Preset: Open, Agents: map[string]string{"a": Careful}}, ""),
		version(Config{Preset: Open, Groups: map[string][]string{"g": {"a"}}}, ""),
		version(Config{Preset: Open}, `forbid (principal, action, resource in Device::"a");`),
		version(Config{Preset: Open}, `forbid (principal, action, resource in Device::"b");`),
	} {
		if was := seen[v]; was != "" {
			t.Errorf("policies %s and %d have the same version", was, i)
		}
		seen[v] = fmt.Sprint(i)
	}
	if a, b := version(Config{Preset: Careful}, ""), version(Config{Preset: Careful}, ""); a != b {
		t.Error("the same policy has two versions")
	}
}

// TestDepth: a file cannot exhaust the stack, which would end the gateway.
func TestDepth(t *testing.T) {
	for _, deep := range []string{strings.Repeat("(", 1<<20), strings.Repeat("!", 1<<20), strings.Repeat("- ", 1<<20), strings.Repeat("[", 1<<20), strings.Repeat("{\"a\":", 1<<20)} {
		if _, err := load(t, Config{}, "a.cedar", "permit (principal, action, resource) when { "+deep+"true };"); err == nil || !strings.HasPrefix(err.Error(), "a.cedar: has more than") {
			t.Errorf("%.20s: %.100v", deep, err)
		}
	}
}

// TestDocumented checks that the reference has the presets and the schema, and that its
// examples work.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, name := range append([]string{people}, presetNames...) {
		if text, err := PresetText(name); err != nil || !strings.Contains(page, string(text)) {
			t.Errorf("the page lacks the preset %s (%v)", name, err)
		}
	}
	if !strings.Contains(page, string(Schema)) {
		t.Error("the page lacks the schema")
	}
	example := func(begin string) string {
		_, text, ok := strings.Cut(page, begin)
		if !ok {
			t.Fatalf("the page lacks the example %q", begin)
		}
		text, _, _ = strings.Cut(text, "```")
		return text
	}
	mustLoad(t, Config{Preset: ReadOnly}, "house.cedar", example("```cedar\n// policies/house.cedar\n"), "house.test.yaml", example("```yaml\n# policies/house.test.yaml\n"))
	p := mustLoad(t, Config{Preset: Careful}, "more.cedar", example("rules take away:\n\n```cedar\n"))
	for args, want := range map[string]ferrule.Ruling{`{"level":30}`: ferrule.Permit, `{"level":31}`: ferrule.Ask, `{}`: ferrule.Forbid, `{"level":30.5}`: ferrule.Forbid} {
		if got := p.Decide(call("claude", "pump", "set", ferrule.Changes, args)); got.Ruling != want {
			t.Errorf("%s: got %+v, want %s", args, got, want)
		}
	}
}

// TestHolder replaces the policy while calls are decided: each is decided by one of them.
func TestHolder(t *testing.T) {
	policies := []*Policy{
		mustLoad(t, Config{Preset: Open}, "a.cedar", `forbid (principal, action, resource in Device::"door");`),
		mustLoad(t, Config{Preset: Careful}, "a.cedar", `forbid (principal, action, resource in Device::"door") when { context.args.angle > 5 };`),
	}
	var h Holder
	h.Replace(policies[0])
	done := make(chan bool)
	for range 4 {
		go func() {
			ok := true
			for range 500 {
				v := h.Decide(call("claude", "door", "open", ferrule.Changes, `{"angle":6}`))
				ok = ok && v.Ruling == ferrule.Forbid && v.Rule == "a.cedar:1"
			}
			done <- ok
		}()
	}
	for i := range 1000 {
		h.Replace(policies[i%2])
	}
	for range 4 {
		if !<-done {
			t.Error("a call was not forbidden while the policy was replaced")
		}
	}
	if h.Version() != policies[1].Version() {
		t.Error("the version is not that of the last policy")
	}
}

// TestLongArrays: arrays that would take Cedar seconds are not converted. They matter only to
// rules that use them, which then forbid.
func TestLongArrays(t *testing.T) {
	var pairs, long []any
	for i := range 10_000 {
		pairs, long = append(pairs, []any{json.Number(strconv.Itoa(i)), json.Number(strconv.Itoa(9999 - i))}), append(long, json.Number(strconv.Itoa(i)))
	}
	start := time.Now()
	for name, array := range map[string][]any{"pairs": pairs, "pair": pairs[:1], "long": long} {
		if uid, ok := set(array, false).(types.EntityUID); !ok || uid.Type != unusable {
			t.Errorf("%s can be used", name)
		}
	}
	figure.AtMost(t, "arrays that are not converted", time.Since(start), time.Second)
	if _, ok := set(long[:maxSet], false).(types.Set); !ok {
		t.Error("an array of usual length cannot be used")
	}
}
