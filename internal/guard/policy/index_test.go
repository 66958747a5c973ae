package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// randomRules returns n rules as large installations have them: most are about one device,
// kind, label or agent, some about everything.
func randomRules(r *rand.Rand, n int) string {
	var b strings.Builder
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	seen := make(map[string]bool)
	for len(seen) < n {
		principal := pick(
			"principal", "principal is Agent", fmt.Sprintf(`principal == Agent::"agent%d"`, r.IntN(200)), fmt.Sprintf(`principal == Agent::"agent%d"`, r.IntN(200)),
			fmt.Sprintf(`principal in Group::"group%d"`, r.IntN(20)), fmt.Sprintf(`principal is Agent in Group::"group%d"`, r.IntN(20)), `principal in Preset::"read-only"`, `principal in Node::"node1"`,
		)
		action := pick("action", "action", `action == Action::"call"`, `action in [Action::"read", Action::"prompt"]`)
		resource := pick(
			fmt.Sprintf(`resource == Tool::"device%d/tool%d"`, r.IntN(1000), r.IntN(4)), fmt.Sprintf(`resource == Tool::"device%d/tool%d"`, r.IntN(1000), r.IntN(4)),
			fmt.Sprintf(`resource in Device::"device%d"`, r.IntN(1000)), fmt.Sprintf(`resource in Device::"device%d"`, r.IntN(1000)),
			fmt.Sprintf(`resource in Label::"room=%d"`, r.IntN(300)), fmt.Sprintf(`resource in Kind::"kind%d"`, r.IntN(300)),
			fmt.Sprintf(`resource is Tool in Model::"model%d"`, r.IntN(300)), fmt.Sprintf(`resource in Device::"old%d"`, r.IntN(1000)),
		)
		if r.IntN(max(n/5, 50)) == 0 {
			resource = "resource"
		}
		condition := pick("", fmt.Sprintf("context.args.level > %d", r.IntN(100)), fmt.Sprintf("context.args has level && context.args.level < %d", r.IntN(100)),
			fmt.Sprintf("context.args has t && context.args.t.greaterThan(decimal(\"%d.5\"))", r.IntN(100)), fmt.Sprintf(`context.args has mode && context.args.mode == "mode%d"`, r.IntN(5)),
			fmt.Sprintf("context.hour >= %d", r.IntN(24)), `resource.effect == "endangers"`, `principal.auth == "token"`, fmt.Sprintf(`resource.name == "tool%d"`, r.IntN(4)),
			`resource.device.hasTag("room") && resource.device.getTag("room") == "7"`)
		kind := pick("when", "unless")
		text := fmt.Sprintf("%s (%s, %s, %s)", pick("permit", "permit", "forbid"), principal, action, resource)
		if condition != "" {
			text += fmt.Sprintf(" %s { %s }", kind, condition)
		}
		if r.IntN(4) == 0 {
			text += " " + pick("when { context.approved }", "unless { context.approved }")
		}
		if !seen[text] {
			seen[text] = true
			b.WriteString(text + ";\n")
		}
	}
	return b.String()
}

// randomCall returns a call that some of the rules apply to.
func randomCall(r *rand.Rand) *ferrule.Call {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	args := []string{`{}`, `{"level":%d}`, `{"level":%d.0}`, `{"level":"%d"}`, `{"t":%d}`, `{"t":%d.25}`, `{"t":%d.123456}`, `{"level":%[1]d,"t":%[1]d}`, `{"level":%d,"mode":"mode1"}`, `{"mode":7}`, `{"level":null}`}[r.IntN(11)]
	if strings.Contains(args, "%") {
		args = fmt.Sprintf(args, r.IntN(100))
	}
	n := r.IntN(1000)
	c := call(pick(fmt.Sprintf("agent%d", r.IntN(220)), fmt.Sprintf("agent%d", r.IntN(220)), fmt.Sprintf("local/x%d", r.IntN(5)), "person:anna"),
		fmt.Sprintf("device%d", n), fmt.Sprintf("tool%d", r.IntN(5)), ferrule.Effect(pick("reads", "changes", "endangers")), args)
	c.Via = pick("", "", "node1", "node2")
	c.Principal.Auth = ferrule.Auth(pick("token", "stdio", ""))
	c.Principal.Groups = pick("", "", "group1", "group2,group3", "group4,nobody")
	c.Operation = ferrule.Operation(pick("", "", "", "read", "prompt", "subscribe"))
	d := c.Target.Device
	d.Labels = map[string]string{"room": fmt.Sprint(r.IntN(300))}
	d.Kind, d.Model = ferrule.Kind(fmt.Sprintf("kind%d", n%300)), fmt.Sprintf("model%d", n%300)
	if n%3 == 0 {
		d.Aliases = []string{fmt.Sprintf("old%d", n)}
	}
	return c
}

// largeConfig has the groups and presets that the random rules name.
func largeConfig() Config {
	cfg := Config{Preset: ReadOnly, Agents: make(map[string]string), Groups: make(map[string][]string), Node: "here"}
	for i := range 200 {
		cfg.Agents[fmt.Sprintf("agent%d", i)] = presetNames[i%3]
		group := fmt.Sprintf("group%d", i%20)
		cfg.Groups[group] = append(cfg.Groups[group], fmt.Sprintf("agent%d", i))
	}
	return cfg
}

// loadRules returns a policy with rules that are not checked for being shadowed.
func loadRules(t testing.TB, cfg Config, text string) *Policy {
	t.Helper()
	check, err := newChecker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	presets, err := presetRules(check)
	if err != nil {
		t.Fatal(err)
	}
	own, err := parseRules("large.cedar", "", []byte(text), check)
	if err != nil {
		t.Fatal(err)
	}
	p := &Policy{cfg: cfg, memberOf: members(cfg.Groups)}
	p.own, p.presets, p.all = newIndex(own, 0), newIndex(presets, len(own)), append(own, presets...)
	return p
}

// plain decides as the documentation says, by Cedar alone: all rules, each time.
func (p *Policy) plain(all cedar.PolicyMap, c *ferrule.Call, now time.Time) ferrule.Ruling {
	q := p.newRequest(c.Principal, c.Via, subjectOf(&c.Target), c.Operation, c.Target.Tool.Name, c.Target.Tool.Effect)
	if c.Operation != ferrule.CallTool {
		q.effect = ferrule.Reads
	}
	entities := types.EntityMap{q.principal: q.whoEntity(), q.resource: q.toolEntity()}
	device := q.deviceEntity()
	entities[device.UID] = device
	context := q.context(c.DecodedArgs, true, now)
	for _, approved := range []types.Boolean{false, true} {
		context[attrApproved] = approved
		decision, diagnostic := cedar.Authorize(all, entities, cedar.Request{Principal: q.principal, Action: q.action, Resource: q.resource, Context: types.NewRecord(context)})
		switch {
		case len(diagnostic.Errors) > 0:
			return ferrule.Forbid
		case decision == cedar.Allow && bool(approved):
			return ferrule.Ask
		case decision == cedar.Allow:
			return ferrule.Permit
		}
	}
	return ferrule.Forbid
}

// TestIndex compares decisions by the index with those of Cedar over all rules. .ci/measure
// runs it with 100,000 other requests.
func TestIndex(t *testing.T) {
	rounds, perRound, seed := 5, 1000, uint64(1)
	if figure.Measuring() {
		rounds, seed = 100, rand.Uint64()
	}
	r := rand.New(rand.NewPCG(seed, 1))
	cfg := largeConfig()
	count := make(map[ferrule.Ruling]int)
	for range rounds {
		p := loadRules(t, cfg, randomRules(r, 40))
		all := maps.Collect(candidates(p.all).All())
		for range perRound {
			c := randomCall(r)
			if r.IntN(3) > 0 {
				c = aimed(r, p, c)
			}
			now := time.Date(2026, 11, 16, r.IntN(24), 0, 0, 0, time.Local)
			got, want := p.decide(c, now), p.plain(all, c, now)
			count[want]++
			if got.Ruling != want {
				t.Fatalf("seed %d: %+v %+v %s: got %+v, want %s", seed, c.Principal, c.Target.Device, c.Tool, got, want)
			}
			if want != ferrule.Forbid && c.Via == "" && !p.Shows(c.Principal, c.Target.Device, c.Operation, c.Target.Tool) {
				t.Fatalf("seed %d: %+v %+v %s: %s, but not shown", seed, c.Principal, c.Target.Device, c.Tool, want)
			}
		}
	}
	t.Logf("%d requests: %v", rounds*perRound, count)
	for _, ruling := range []ferrule.Ruling{ferrule.Permit, ferrule.Ask, ferrule.Forbid} {
		if count[ruling] < rounds*perRound/100 {
			t.Errorf("seed %d: only %d of %s", seed, count[ruling], ruling)
		}
	}
}

// aimed changes a call so that one of the rules is about its device.
func aimed(r *rand.Rand, p *Policy, c *ferrule.Call) *ferrule.Call {
	rule := p.own.rules[r.IntN(len(p.own.rules))]
	d := c.Target.Device
	switch id := string(rule.resource.entity.ID); rule.resource.entity.Type {
	case typeTool:
		device, tool, _ := strings.Cut(id, "/")
		d.ID, c.Device, c.Tool, c.Target.Tool.Name = device, device, tool, tool
	case typeDevice:
		if strings.HasPrefix(id, "old") {
			d.Aliases = []string{id}
		} else {
			d.ID, c.Device = id, id
		}
	case typeKind:
		d.Kind = ferrule.Kind(id)
	case typeModel:
		d.Model = id
	case typeLabel:
		d.Labels["room"] = strings.TrimPrefix(id, "room=")
	}
	if rule.principal.entity.Type == typeAgent {
		c.Principal.Name, c.Principal.Role = string(rule.principal.entity.ID), ferrule.Agent
	}
	return c
}

// TestIndexSpeed checks that the index leaves few rules for a decision, and measures the
// decision among 10,000 rules, with the index and by Cedar over all rules.
func TestIndexSpeed(t *testing.T) {
	many := 1000
	if figure.Measuring() {
		many = 10_000
	}
	r := rand.New(rand.NewPCG(7, 7))
	p := loadRules(t, largeConfig(), randomRules(r, many))
	calls := make([]*ferrule.Call, 1000)
	for i := range calls {
		calls[i] = aimed(r, p, randomCall(r))
	}
	rules := 0
	for _, c := range calls {
		rules += len(p.own.find(p.newRequest(c.Principal, c.Via, subjectOf(&c.Target), c.Operation, c.Tool, c.Target.Tool.Effect)))
	}
	if n := rules / len(calls); n > 10 {
		t.Errorf("the index leaves %d rules of %d", n, many)
	}
	if !figure.Measuring() {
		return
	}
	all, now := maps.Collect(candidates(p.all).All()), time.Now()
	// The best of several runs of each call: other processes do not count.
	var sum time.Duration
	for _, c := range calls {
		best := time.Hour
		for range 20 {
			start := time.Now()
			p.decide(c, now)
			best = min(best, time.Since(start))
		}
		sum += best
	}
	best := sum / time.Duration(len(calls))
	sum = 0
	for _, c := range calls {
		best := time.Hour
		for range 20 {
			start := time.Now()
			p.Shows(c.Principal, c.Target.Device, c.Operation, c.Target.Tool)
			best = min(best, time.Since(start))
		}
		sum += best
	}
	t.Logf("%v per tool of a list", sum/time.Duration(len(calls)))
	start := time.Now()
	for _, c := range calls[:10] {
		if got, want := p.decide(c, now).Ruling, p.plain(all, c, now); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	plain := time.Since(start) / 10
	figure.AtMost(t, "decision among 10,000 rules, limit a tenth of that without the index", best, plain/10)
	figure.AtMost(t, "decision among 10,000 rules", best, 50*time.Microsecond)
	start = time.Now()
	_ = p.checkShadowed(p.own.rules) // it finds some
	figure.AtMost(t, "search for rules without effect among 10,000", time.Since(start), 20*time.Second)
}
