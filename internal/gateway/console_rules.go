package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/policy"
)

// Limits of what the console shows of the rules.
const (
	maxRuleFiles    = 100
	maxRuleProblems = 50
	maxRuleGroups   = 200
	maxRuleLimits   = 50
)

// consoleRules implements api.Rules.
type consoleRules struct{ *Gateway }

// Rules implements api.Rules.
func (c consoleRules) Rules() api.RulesOutput {
	p := c.Policy.Get()
	out := api.RulesOutput{Since: p.Loaded(), Dir: p.Dir(), Version: p.Version(), Agents: []api.AgentPreset{}, Groups: []api.RuleGroup{}, Files: []api.RuleFile{}, Limits: c.limits()}
	preset, agents := p.Preset()
	out.Preset = preset
	for _, name := range first(slices.Sorted(maps.Keys(agents)), maxRuleGroups) {
		out.Agents = append(out.Agents, api.AgentPreset{Agent: name, Preset: agents[name]})
	}
	groups := p.Groups()
	for _, name := range first(slices.Sorted(maps.Keys(groups)), maxRuleGroups) {
		out.Groups = append(out.Groups, api.RuleGroup{Name: name, Members: first(groups[name], maxRuleGroups)})
	}
	sources := p.Sources()
	tests := make(map[string]int)
	for _, s := range sources {
		out.Rules, out.Tests = out.Rules+len(s.Rules), out.Tests+s.Tests
		tests[strings.TrimSuffix(s.Name, policy.TestsExt)] = s.Tests
	}
	for _, s := range first(sources, maxRuleFiles) {
		f := api.RuleFile{Name: s.Name, Text: s.Text, Tests: s.Tests}
		for _, r := range s.Rules {
			f.Rules = append(f.Rules, api.Rule(r))
		}
		if base, ok := strings.CutSuffix(s.Name, policy.RulesExt); ok {
			f.Tests = tests[base]
		}
		out.Files = append(out.Files, f)
	}
	return out
}

func first[T any](all []T, n int) []T { return all[:min(len(all), n)] }

// limits returns the first physical limits of tools.
func (c consoleRules) limits() []api.RuleLimit {
	all := []api.RuleLimit{}
	for _, d := range c.Catalog.All().Devices(maxLimited) {
		_, manifest, ok := c.Catalog.Lookup(d.ID)
		if !ok || manifest == nil {
			continue
		}
		for i := range manifest.Tools {
			if t := &manifest.Tools[i]; t.Limits != nil && len(all) < maxRuleLimits {
				all = append(all, api.RuleLimit{Device: d.ID, Tool: t.Name, Text: describeLimits(t.Limits)})
			}
		}
	}
	return all
}

// maxLimited is how many devices are searched for limits.
const maxLimited = 2000

// describeLimits returns physical limits in words.
func describeLimits(l *ferrule.Limits) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(l.Range)) {
		r := l.Range[name]
		switch {
		case r.Min != "" && r.Max != "":
			words = append(words, fmt.Sprintf("%s from %s to %s", name, r.Min, r.Max))
		case r.Min != "":
			words = append(words, fmt.Sprintf("%s at least %s", name, r.Min))
		case r.Max != "":
			words = append(words, fmt.Sprintf("%s at most %s", name, r.Max))
		}
		if r.Step != "" {
			words = append(words, fmt.Sprintf("%s changes by at most %s", name, r.Step))
		}
	}
	if l.Rate != nil {
		words = append(words, fmt.Sprintf("at most %s calls", l.Rate))
	}
	if l.Cooldown > 0 {
		words = append(words, fmt.Sprintf("%v between calls", l.Cooldown))
	}
	if l.OnTime != nil {
		words = append(words, fmt.Sprintf("on for at most %v in %v", l.OnTime.Max, l.OnTime.Per))
	}
	if len(l.By) > 0 {
		words = append(words, "for each "+strings.Join(l.By, " and "))
	}
	return strings.Join(words, ", ")
}

// TestRules implements api.Rules.
func (c consoleRules) TestRules() (api.TestRulesOutput, error) {
	cfg := c.parts.Config
	if c.parts.Load != nil {
		var err error
		if cfg, err = c.parts.Load(); err != nil {
			return api.TestRulesOutput{}, ferrule.Errorf(ferrule.Invalid, "the configuration cannot be read: %w", err)
		}
	}
	p, err := c.readPolicy(cfg)
	out := api.TestRulesOutput{Problems: []api.RuleProblem{}, Changed: p == nil || p.Version() != c.Policy.Version()}
	for _, one := range policy.Problems(err, maxRuleProblems) {
		out.Problems = append(out.Problems, api.RuleProblem(one))
	}
	for _, s := range p.Sources() {
		out.Rules, out.Tests = out.Rules+len(s.Rules), out.Tests+s.Tests
	}
	return out, nil
}

// ReloadConfig implements builtin.Reloader.
func (g *Gateway) ReloadConfig() (applied, restart []string, err error) {
	done, err := g.Reload()
	return done.Applied, done.Restart, err
}
