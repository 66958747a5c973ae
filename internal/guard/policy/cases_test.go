package policy

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestCases has tests beside the rules that must fail, with their lines, and others that
// must pass.
func TestCases(t *testing.T) {
	rules := `forbid (principal is Agent, action == Action::"read", resource in Device::"camera");
forbid (principal, action, resource in Transport::"serial") when { context.hour < 6 && context.args.level > 5 };`
	for text, want := range map[string]string{
		"": "", "# nothing\n": "",
		"- {who: claude, device: lamp, tool: on, expect: permit}\n- {who: claude, device: door, tool: open, effect: endangers, expect: ask}\n": "",
		"- {who: agent:claude, device: camera, operation: read, tool: 'file:///a', expect: forbid}":                                            "",
		"- {who: person:anna, device: camera, operation: read, tool: 'file:///a', expect: permit}":                                             "",
		"- {who: a, device: d, tool: t, transport: serial, at: '2026-11-30 05:59', args: {level: 6}, expect: forbid}":                          "",
		"- {who: a, device: d, tool: t, transport: serial, at: '2026-11-30 05:59', args: {level: 5.0}, expect: permit}":                        "",
		"- {who: a, device: d, tool: t, transport: serial, at: '2026-11-30 06:00', args: {level: 6}, expect: permit}":                          "",

		"# one\n\n- who: claude\n  device: lamp\n  tool: on\n  expect: forbid\n": "a.test.yaml:3: expected forbid, got permit for agent:claude calling on of lamp: the preset careful permits it",
		"- {who: a, device: d, tool: t, expect: ask}\n- {who: b, device: d, tool: t, expect: ask}": "a.test.yaml:1: expected ask, got permit for agent:a calling t of d: the preset careful permits it\n" +
			"a.test.yaml:2: expected ask, got permit for agent:b",
		"- {who: a, device: d, tool: t}":                                      `a.test.yaml:1: expect must be permit, ask or forbid, got ""`,
		"- {who: a, tool: t, expect: ask}":                                    "a.test.yaml:1: who, device and tool must be set",
		"- {who: a, device: d, tool: t, expect: ask, when: now}":              "a.test.yaml:1: unknown field",
		"- {who: a, device: d, tool: t, expect: ask, effect: harmless}":       "a.test.yaml:1: effect must be reads, changes or endangers",
		"- {who: a, device: d, tool: t, expect: ask, operation: delete}":      "a.test.yaml:1: operation must be",
		"- {who: a, device: d, tool: t, expect: ask, operation: unsubscribe}": "a.test.yaml:1: operation must be",
		"- {who: a, device: d, tool: t, expect: ask, at: noon}":               "a.test.yaml:1: at must be a time such as",
		"who: a":         "a.test.yaml:1: must be a list of tests",
		"- {who: a\n- {": "a.test.yaml:",
		"- text":         "a.test.yaml:1: ",
	} {
		_, err := load(t, Config{Preset: Careful}, "a.cedar", rules, "a.test.yaml", text)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// TestShows: what may be permitted with some arguments at some time is shown, and what never
// is, is not.
func TestShows(t *testing.T) {
	for rules, want := range map[string]bool{
		`forbid (principal, action, resource);`:                                                                                                        false,
		`forbid (principal, action, resource in Device::"lamp");`:                                                                                      false,
		`forbid (principal, action, resource in Device::"other");`:                                                                                     true,
		`forbid (principal, action, resource) when { resource.effect == "changes" };`:                                                                  false,
		`forbid (principal, action, resource) unless { context.approved };`:                                                                            true,
		`forbid (principal, action, resource) when { context.args.level > 5 };`:                                                                        true,
		`forbid (principal, action, resource) when { context.args has level };`:                                                                        true,
		`forbid (principal, action, resource) when { context.args.level.lessThan(decimal("5.5")) };`:                                                   true,
		`forbid (principal, action, resource) when { context.hour > 5 };`:                                                                              true,
		`forbid (principal, action, resource) when { context.network == "remote" };`:                                                                   true,
		`forbid (principal, action, resource) when { resource.name == "on" && context.args.level == 5 };`:                                              true,
		`forbid (principal, action, resource) when { resource.name == "on" || context.args.level == 5 };`:                                              false,
		`forbid (principal, action, resource) when { 9223372036854775807 + 1 > 0 };`:                                                                   false, // always fails
		`forbid (principal, action, resource) when { context.approved };` + "\n" + `forbid (principal, action, resource) unless { context.approved };`: false,
	} {
		p := mustLoad(t, Config{Preset: Open}, "a.cedar", rules)
		c := call("claude", "lamp", "on", ferrule.Changes, "")
		if got := p.Shows(c.Principal, c.Target.Device, c.Operation, c.Target.Tool); got != want {
			t.Errorf("%s\nshown: %v, want %v", rules, got, want)
		}
	}
	for rules, want := range map[string]bool{
		`permit (principal, action, resource in Device::"other");`:                            false,
		`permit (principal, action, resource) when { context.approved };`:                     true,
		`permit (principal, action, resource) when { context.args.level < 5 };`:               true,
		`permit (principal, action, resource) when { context.hour > 5 && context.approved };`: true,
		`permit (principal, action, resource) when { resource.name == "off" };`:               false,
		`permit (principal, action == Action::"read", resource);`:                             false,
	} {
		p := mustLoad(t, Config{Preset: ReadOnly}, "a.cedar", rules)
		c := call("claude", "lamp", "on", ferrule.Changes, "")
		if got := p.Shows(c.Principal, c.Target.Device, c.Operation, c.Target.Tool); got != want {
			t.Errorf("%s\nshown: %v, want %v", rules, got, want)
		}
	}
}
