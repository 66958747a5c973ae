package policy

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FuzzRules loads any text as rules. It must not panic, an error must say where it is, and
// with rules that load, every call gets a verdict.
func FuzzRules(f *testing.F) {
	for _, name := range append([]string{people}, presetNames...) {
		text, err := PresetText(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add(house)
	for _, text := range []string{
		`forbid (principal, action, resource) when { context.args.t.greaterThan(decimal("1.5")) };`,
		`forbid (principal == Agent::"a", action in [Action::"call"], resource is Tool in Device::"d") unless { context.args has x && [1, 2].contains(context.args.x) };`,
		`permit (principal, action, resource) when { if context.args.a then context.args.b like "x*" else -context.args.c * 2 + 1 > context.hour };`,
		`forbid (principal, action, resource) when { context.args.a.b.c == {"x": [1, {}]} || context == context };`,
		`@id("x") @note permit(principal in Group::"g", action, resource) when { resource.device.getTag(context.args.x) == "" };`,
		`permit (principal, action, resource) when { ip("1.2.3.4").isInRange(ip("10.0.0.0/8")) && context.time.offset(duration("1h")) > datetime("2026-01-01") };`,
		`permit (principal, action, resource) when { 9223372036854775807 + context.args.x > 0 };`,
	} {
		f.Add(text)
	}
	cfg := Config{Preset: ReadOnly, Groups: map[string][]string{"g": {"a"}}, Node: "here"}
	check, err := newChecker(cfg)
	if err != nil {
		f.Fatal(err)
	}
	presets, err := presetRules(check)
	if err != nil {
		f.Fatal(err)
	}
	calls := []*ferrule.Call{
		call("a", "d", "t", ferrule.Changes, `{"x":1,"t":2.5,"a":{"b":{"c":1}}}`), call("b", "lamp", "on", ferrule.Reads, ""), call("person:p", "d", "t", ferrule.Endangers, `{"a":true,"b":"x","c":1}`),
	}
	f.Fuzz(func(t *testing.T, text string) {
		own, err := parseRules("a.cedar", "", []byte(text), check)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "a.cedar:") { // with the line, if there is one
				t.Errorf("an error without a place: %v", err)
			}
			return
		}
		p := &Policy{cfg: cfg, memberOf: members(cfg.Groups)}
		_ = p.checkShadowed(own)
		p.own, p.presets, p.all = newIndex(own, 0), newIndex(presets, len(own)), append(own, presets...)
		for _, c := range calls {
			v := p.Decide(c)
			if v.Ruling == "" || v.Reason == "" {
				t.Errorf("got %+v", v)
			}
			if v.Ruling != ferrule.Forbid && !p.Shows(c.Principal, c.Target.Device, c.Operation, c.Target.Tool) {
				t.Errorf("%s, but not shown: %+v", v.Ruling, v)
			}
			_ = p.Text(v.Rule)
		}
	})
}

// FuzzCases runs any text as tests.
func FuzzCases(f *testing.F) {
	f.Add("- {who: claude, device: lamp, tool: on, effect: reads, expect: permit}\n")
	f.Add("- who: person:anna\n  device: door\n  labels: {room: hall}\n  tool: open\n  args: {angle: 90.5, list: [1, null, {a: b}]}\n  at: 2026-11-30 22:15\n  expect: ask\n")
	f.Add("who: x")
	f.Add("- [1, 2]\n- *a\n- &a {who: *a}\n---\n- x\n")
	p := mustLoad(f, Config{Preset: Careful})
	f.Fuzz(func(t *testing.T, text string) {
		n, err := p.runCases(file{name: "a.test.yaml", text: []byte(text)})
		if err != nil && !strings.HasPrefix(err.Error(), "a.test.yaml:") {
			t.Errorf("an error without a place: %v", err)
		}
		if err == nil && n == 0 && strings.Contains(text, "- {who: claude, device: lamp, tool: on, expect: forbid}\n") {
			t.Error("a test was ignored")
		}
	})
}

// FuzzArguments converts any JSON. A number must keep its exact value, or become unusable.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{`{"a":21}`, `{"a":2.1e1}`, `{"a":-0.0001}`, `{"a":1e400}`, `{"a":[1,{"b":null}]}`, `{"a":9223372036854775808}`, `{"a":0e99999999999999999999}`, `{"a":922337203685477.5807}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var args map[string]any
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.UseNumber()
		if d.Decode(&args) != nil {
			return
		}
		for _, decimals := range []bool{false, true} {
			for name, v := range record(args, decimals).All() {
				compare(t, args[string(name)], v, decimals)
			}
		}
		p := &Policy{own: &index{}, cfg: Config{Preset: Careful}}
		q := p.newRequest(ferrule.Principal{Role: ferrule.Agent}, "", subject{Device: &ferrule.Device{ID: "d"}}, ferrule.CallTool, "t", ferrule.Reads)
		types.NewRecord(q.context(args, true, time.Time{}))
	})
}

// compare checks that a converted value is exactly the original.
func compare(t *testing.T, from any, to types.Value, decimals bool) {
	t.Helper()
	n, ok := from.(json.Number)
	if !ok {
		return
	}
	switch to := to.(type) {
	case types.EntityUID:
		if to.Type != unusable {
			t.Errorf("%s became %s", n, to)
		}
	case types.Long:
		if decimals || !same(string(n), to.String()) {
			t.Errorf("%s became %s", n, to)
		}
	case types.Decimal:
		if !same(string(n), to.String()) {
			t.Errorf("%s became %s", n, to)
		}
	default:
		t.Errorf("%s became %T", n, to)
	}
}

// same reports whether two texts are the same number.
func same(a, b string) bool {
	if i := strings.IndexAny(a, "eE"); i >= 0 {
		sign, exponent := "", a[i+1:]
		if exponent[0] == '-' || exponent[0] == '+' {
			sign, exponent = exponent[:1], exponent[1:]
		}
		if exponent = strings.TrimLeft(exponent, "0"); len(exponent) > 4 {
			return strings.Trim(a[:i], "-0.") == "" && strings.Trim(b, "-0.") == "" // too large for big.Rat
		}
		a = a[:i] + "e" + sign + "0" + exponent
	}
	x, ok := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	return ok && ok2 && x.Cmp(y) == 0
}
