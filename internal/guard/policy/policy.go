// Package policy decides who may call what. Its rules are written in Cedar: those of a
// preset, which every agent has, and those in the owner's files.
//
//	policies/*.cedar     ─▶ parse ─▶ check against the schema ─▶ index ┐
//	presets/*.cedar      ─▶ parse ─▶ check against the schema ─────────┼─▶ Policy
//	policies/*.test.yaml ─▶ run, each must have the expected verdict ──┘
//
//	Decide(call):  approved = false ─▶ permitted: permit
//	                                └▶ else, approved = true ─▶ permitted: ask
//	                                                         └▶ else: forbid
//
// All rules are one set. A rule that forbids wins over all that permit, and what no rule
// permits is forbidden. Cedar skips a rule whose evaluation fails, also one that forbids;
// here every failure forbids the call. An argument that a rule uses and the call lacks, or
// that has another type than the rule expects, is such a failure.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config says which rules apply to whom.
type Config struct {
	// Preset is the preset of agents that are not in Agents.
	Preset string
	// Agents has presets by the names of agents.
	Agents map[string]string
	// Groups has the members of groups: names of agents, or person:NAME.
	Groups map[string][]string
	// Claimed are groups that a caller may also be in by its credential: roles of people, and
	// those that the owner mapped groups of an issuer to. One that is in Groups is the same
	// group.
	Claimed []string
	// Dir is the directory of rules and tests; empty for none. It need not exist, unless
	// Required is set.
	Dir      string
	Required bool
	// Node is the name of this node.
	Node string
	// Forwarders are tools of the gateway that only make other calls, which are decided one
	// by one. Rules see them as tools that read.
	Forwarders []string
	// Always are tools of the gateway that no rule can forbid.
	Always []string
}

// DefaultConfig returns the preset careful and the directory policies.
func DefaultConfig() Config { return Config{Preset: Careful, Dir: "policies"} }

// selfNamed is the beginning of the names of agents that chose their names themselves.
const selfNamed = "local/"

// Check returns an error if a name is not valid. It does not read files.
func (c Config) Check() error {
	if rank(c.Preset) < 0 {
		return fmt.Errorf("preset: must be %s, got %q", strings.Join(presetNames, ", "), ferrule.Clean(c.Preset, ferrule.MaxWord))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		preset := c.Agents[name]
		switch {
		case name == "":
			return errors.New("agents: a name must not be empty")
		case strings.HasPrefix(name, string(ferrule.Person)+":"):
			return fmt.Errorf("agents: %s is not an agent; presets are for agents, and rules for people", name)
		case strings.HasPrefix(name, string(ferrule.Agent)+":"):
			return fmt.Errorf("agents: %s must be written without agent:", name)
		case rank(preset) < 0:
			return fmt.Errorf("agents: the preset of %s must be %s, got %q", name, strings.Join(presetNames, ", "), ferrule.Clean(preset, ferrule.MaxWord))
		case strings.HasPrefix(name, selfNamed) && rank(preset) < rank(c.Preset):
			return fmt.Errorf("agents: %s must not have the preset %s, which is milder than preset: %s. Any program on this machine can take that name; give the agent a token in auth.tokens", name, preset, c.Preset)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(c.Groups)) {
		if group == "" || slices.Contains(c.Groups[group], "") {
			return errors.New("groups: a name must not be empty")
		}
	}
	return nil
}

// Policy is a set of rules. It is immutable.
type Policy struct {
	cfg      Config
	memberOf map[types.EntityUID][]string // groups by principal, sorted
	own      *index                       // rules of files
	presets  *index
	all      []*rule // by the number in their ID
	tests    int
	version  string
	sources  []Source // without rules
	loaded   time.Time
}

// Load reads the rules and runs their tests. Errors have the file and the line.
func Load(cfg Config) (*Policy, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("policy.%w", err)
	}
	check, err := newChecker(cfg)
	if err != nil {
		return nil, err
	}
	presets, err := presetRules(check)
	if err != nil {
		return nil, err
	}
	files, err := readFiles(cfg.Dir, cfg.Required)
	if err != nil {
		return nil, err
	}
	p := &Policy{cfg: cfg, memberOf: members(cfg.Groups), loaded: time.Now()}
	hash, said := sha256.New(), cfg
	said.Dir, said.Required = "", false // the rules count, not where they are
	if err := json.NewEncoder(hash).Encode(said); err != nil {
		return nil, err
	}
	var own []*rule
	for _, f := range files {
		fmt.Fprintf(hash, "%q %q\n", f.name, f.text)
		p.sources = append(p.sources, Source{Name: f.name, Text: string(f.text)})
		if !f.rules {
			continue
		}
		rules, err := parseRules(f.name, "", f.text, check)
		if err != nil {
			return nil, err
		}
		own = append(own, rules...)
	}
	if err := p.checkShadowed(own); err != nil {
		return nil, err
	}
	p.own, p.presets, p.all = newIndex(own, 0), newIndex(presets, len(own)), slices.Concat(own, presets)
	for _, r := range presets {
		fmt.Fprintf(hash, "%q\n", r.text)
	}
	p.version = hex.EncodeToString(hash.Sum(nil)[:16])
	var failed []error
	for i, f := range files {
		if f.rules {
			continue
		}
		n, err := p.runCases(f)
		p.tests += n
		p.sources[i].Tests = n
		failed = append(failed, err)
	}
	return p, errors.Join(failed...)
}

// members returns the groups of each principal.
func members(groups map[string][]string) map[types.EntityUID][]string {
	memberOf := make(map[types.EntityUID][]string)
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		for _, member := range groups[group] {
			who := ParsePrincipal(member)
			uid := types.NewEntityUID(typeAgent, types.String(who.Name))
			if who.Role == ferrule.Person {
				uid.Type = typePerson
			}
			if !slices.Contains(memberOf[uid], group) {
				memberOf[uid] = append(memberOf[uid], group)
			}
		}
	}
	return memberOf
}

// ParsePrincipal returns the caller that a text names: person:NAME, agent:NAME, or the name
// of an agent.
func ParsePrincipal(text string) ferrule.Principal {
	if name, ok := strings.CutPrefix(text, string(ferrule.Person)+":"); ok {
		return ferrule.Principal{Role: ferrule.Person, Name: name}
	}
	return ferrule.Principal{Role: ferrule.Agent, Name: strings.TrimPrefix(text, string(ferrule.Agent)+":")}
}

// preset returns the preset of an agent.
func (p *Policy) preset(agent string) string {
	if preset, ok := p.cfg.Agents[agent]; ok {
		return preset
	}
	return p.cfg.Preset
}

// Version identifies the rules: it changes with each of them.
func (p *Policy) Version() string { return p.version }

// Dir returns the directory of the rules; "" if there are none.
func (p *Policy) Dir() string {
	if len(p.own.rules) == 0 {
		return ""
	}
	return p.cfg.Dir
}

// String describes the policy in a few words.
func (p *Policy) String() string {
	text := "preset " + p.cfg.Preset
	if n := len(p.cfg.Agents); n > 0 {
		text += fmt.Sprintf(" (%s with another)", count(n, "agent"))
	}
	if n := len(p.own.rules); n > 0 || p.tests > 0 {
		text += fmt.Sprintf(", %s and %s in %s", count(n, "rule"), count(p.tests, "test"), p.cfg.Dir)
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Text returns the source of a rule that a verdict names; "" if it is unknown.
func (p *Policy) Text(place string) string {
	var found []string
	for _, r := range p.all {
		if r.place() == place {
			found = append(found, r.text)
		}
	}
	return strings.Join(found, "\n\n")
}

// Decide returns the verdict on a resolved call. What is unknown or wrong forbids.
func (p *Policy) Decide(call *ferrule.Call) ferrule.Verdict { return p.decide(call, time.Now()) }

func (p *Policy) decide(call *ferrule.Call, now time.Time) ferrule.Verdict {
	if call == nil {
		return forbid("there is no call")
	}
	effect, final, ok := p.classify(call.Principal, call.Target.Device, call.Operation, call.Target.Tool)
	if !ok {
		return final
	}
	dev := subjectOf(&call.Target)
	v := p.decideAs(call, dev, effect, now)
	if dev.Offered == "" || len(p.own.rules) == 0 {
		return v
	}
	// What a device offers is forbidden by the rules for that Kind. They permit nothing
	// before the owner has accepted it: a device can offer any Kind.
	dev.offered = true
	if other := p.decideAs(call, dev, effect, now); strictness(other.Ruling) > strictness(v.Ruling) {
		return other
	}
	return v
}

// strictness orders rulings.
func strictness(r ferrule.Ruling) int {
	switch r {
	case ferrule.Permit:
		return 0
	case ferrule.Ask:
		return 1
	}
	return 2
}

func (p *Policy) decideAs(call *ferrule.Call, dev subject, effect ferrule.Effect, now time.Time) ferrule.Verdict {
	if len(p.own.rules) > 0 {
		q := p.newRequest(call.Principal, call.Via, dev, call.Operation, call.Target.Tool.Name, effect)
		if found := p.own.find(q); len(found) > 0 {
			v := p.evaluate(q, append(found, p.presets.find(q)...), call.DecodedArgs, now)
			if v.Ruling == ferrule.Ask && forPeople(call) {
				v.Ruling = ferrule.Permit
			}
			return v
		}
	}
	return byPreset(p.preset(call.Principal.Name), call.Principal.Role, call.Operation, effect)
}

// forPeople reports whether a person calls a tool of the gateway that only people have. It
// needs no approval: to approve something is such a call.
func forPeople(call *ferrule.Call) bool {
	return call.Principal.Role == ferrule.Person && call.Target.Device.ID == ferrule.GatewayID && call.Target.Tool.UserOnly
}

// classify returns the effect that the rules see. If ok is false, no rule decides, and
// final is the verdict.
func (p *Policy) classify(who ferrule.Principal, dev *ferrule.Device, op ferrule.Operation, tool *ferrule.Tool) (effect ferrule.Effect, final ferrule.Verdict, ok bool) {
	switch {
	case p == nil:
		return "", forbid("no policy is loaded"), false
	case who.Role == ferrule.Gateway:
		return "", ferrule.Verdict{Ruling: ferrule.Permit, Reason: "the gateway does what its owner configured"}, false
	case who.Role != ferrule.Agent && who.Role != ferrule.Person:
		return "", forbid("the caller is neither an agent nor a person"), false
	case dev == nil || dev.ID == "" || tool == nil || tool.Name == "":
		return "", forbid("the device or the tool is unknown"), false
	case op == ferrule.Unsubscribe:
		return "", ferrule.Verdict{Ruling: ferrule.Permit, Reason: "a subscription may always be ended"}, false
	case actionNames[op] == "":
		return "", forbid("the operation is unknown"), false
	}
	effect = tool.Effect
	own := dev.ID == ferrule.GatewayID && op == ferrule.CallTool
	switch {
	case own && slices.Contains(p.cfg.Always, tool.Name):
		return "", ferrule.Verdict{Ruling: ferrule.Permit, Reason: "this tool of the gateway is always permitted"}, false
	case op != ferrule.CallTool || own && slices.Contains(p.cfg.Forwarders, tool.Name):
		effect = ferrule.Reads
	case effect == "":
		effect = ferrule.Changes
	}
	switch effect {
	case ferrule.Reads, ferrule.Changes, ferrule.Endangers:
		return effect, final, true
	}
	return "", forbid(fmt.Sprintf("its effect %q is unknown", ferrule.Clean(string(effect), ferrule.MaxWord))), false
}

// evaluate decides by rules: without an approval, and if that does not permit the call, with
// one.
func (p *Policy) evaluate(q *request, rules candidates, args map[string]any, now time.Time) ferrule.Verdict {
	context := q.context(args, slices.ContainsFunc(rules, func(r *rule) bool { return r.decimals }), now)
	allowed, before, failed := p.authorize(q, rules, context)
	switch {
	case failed != nil:
		return *failed
	case allowed:
		return verdict(ferrule.Permit, before, "permits it")
	}
	context[attrApproved] = types.True
	allowed, after, failed := p.authorize(q, rules, context)
	switch {
	case failed != nil:
		return *failed
	case allowed && before != nil:
		return verdict(ferrule.Ask, before, "requires the approval of a person")
	case allowed:
		return verdict(ferrule.Ask, after, "permits it with the approval of a person")
	case after != nil:
		return verdict(ferrule.Forbid, after, "forbids it")
	case before != nil:
		return verdict(ferrule.Forbid, before, "forbids it")
	}
	return forbid("no rule permits it")
}

func verdict(ruling ferrule.Ruling, r *rule, does string) ferrule.Verdict {
	if r == nil { // cannot be: a decision other than the default has a reason
		return forbid("no rule was found")
	}
	return ferrule.Verdict{Ruling: ruling, Reason: fmt.Sprintf("the rule %s %s", r.title(), does), Rule: r.place()}
}

// authorize evaluates rules once. It returns the first rule that decided, if one did.
func (p *Policy) authorize(q *request, rules candidates, context types.RecordMap) (allowed bool, by *rule, failed *ferrule.Verdict) {
	decision, diagnostic := cedar.Authorize(rules, q, cedar.Request{Principal: q.principal, Action: q.action, Resource: q.resource, Context: types.NewRecord(context)})
	if len(diagnostic.Errors) > 0 {
		first := slices.MinFunc(diagnostic.Errors, func(a, b cedar.DiagnosticError) int { return indexOf(a.PolicyID) - indexOf(b.PolicyID) })
		r := p.all[indexOf(first.PolicyID)]
		return false, r, &ferrule.Verdict{
			Ruling: ferrule.Forbid, Rule: r.place(),
			Reason: fmt.Sprintf("the rule %s could not be evaluated: %s", r.title(), ferrule.Clean(first.Message, maxMessage)),
		}
	}
	if len(diagnostic.Reasons) > 0 {
		first := slices.MinFunc(diagnostic.Reasons, func(a, b cedar.DiagnosticReason) int { return indexOf(a.PolicyID) - indexOf(b.PolicyID) })
		by = p.all[indexOf(first.PolicyID)]
	}
	return decision == cedar.Allow, by, nil
}

// indexOf returns the number of a rule.
func indexOf(id types.PolicyID) int {
	n, err := strconv.Atoi(string(id))
	if err != nil {
		return 0 // cannot be: newIndex made it
	}
	return n
}

// Shows reports whether a caller may use a tool with some arguments at some time, or may ask
// to. Lists have what it reports; each call is decided by Decide. Rules for the Kind that a
// device had before its effects became stricter are not known here.
func (p *Policy) Shows(who ferrule.Principal, dev *ferrule.Device, op ferrule.Operation, tool *ferrule.Tool) bool {
	effect, final, ok := p.classify(who, dev, op, tool)
	if !ok {
		return final.Ruling != ferrule.Forbid
	}
	own := subject{Device: dev}
	shown := p.showsAs(who, own, op, tool, effect)
	if own.offered = dev.Offered != "" && len(p.own.rules) > 0; own.offered && shown {
		return p.showsAs(who, own, op, tool, effect)
	}
	return shown
}

func (p *Policy) showsAs(who ferrule.Principal, dev subject, op ferrule.Operation, tool *ferrule.Tool, effect ferrule.Effect) bool {
	if len(p.own.rules) > 0 {
		q := p.newRequest(who, "", dev, op, tool.Name, effect)
		if found := p.own.find(q); len(found) > 0 {
			found = append(found, p.presets.find(q)...)
			return found.mayPermit(q, unknownContexts[0]) || found.mayPermit(q, unknownContexts[1])
		}
	}
	return byPreset(p.preset(who.Name), who.Role, op, effect).Ruling != ferrule.Forbid
}

// mayPermit reports whether a request may be permitted, whatever its arguments and the time.
func (c candidates) mayPermit(q *request, context types.Record) bool {
	// Most rules do not look at what is unknown, and Cedar is faster than partial evaluation.
	var static, dynamic candidates
	for _, r := range c {
		if r.dynamic {
			dynamic = append(dynamic, r)
		} else {
			static = append(static, r)
		}
	}
	decision, diagnostic := cedar.Authorize(static, q, cedar.Request{Principal: q.principal, Action: q.action, Resource: q.resource, Context: context})
	permitted := decision == cedar.Allow
	if len(diagnostic.Errors) > 0 || !permitted && len(diagnostic.Reasons) > 0 {
		return false
	}
	for _, r := range dynamic {
		switch o := partial(r, q, context); {
		case o == broken, o == always && !r.permit:
			return false
		case o != never && r.permit:
			permitted = true
		}
	}
	return permitted
}
