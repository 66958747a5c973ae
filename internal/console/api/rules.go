package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Rules is the policy of the gateway.
type Rules interface {
	// Rules returns what is in force.
	Rules() RulesOutput
	// TestRules reads the files again, checks them and runs their tests. Nothing comes into
	// force.
	TestRules() (TestRulesOutput, error)
}

// ruleOperations returns the operations on the policy.
func (a *API) ruleOperations() []Operation {
	return []Operation{
		operation(http.MethodGet, "/rules", "Show the rules that are in force.", ferrule.ScopeRead, a.Rules),
		operation(http.MethodPost, "/rules/explain", "Say what the policy decides on a call, which is not made.", ferrule.ScopeAdmin, a.ExplainPolicy),
		operation(http.MethodPost, "/rules/test", "Read the files of rules, check them and run their tests. Nothing comes into force.", ferrule.ScopeAdmin, a.TestRules),
		operation(http.MethodPost, "/reload", "Read the configuration, rules, overlays and tokens again.", ferrule.ScopeAdmin, a.Reload),
	}
}

// RulesInput has the parameters of Rules.
type RulesInput struct{}

// RulesOutput is what is in force.
type RulesOutput struct {
	Preset  string        `json:"preset" jsonschema:"preset of agents that have no other"`
	Agents  []AgentPreset `json:"agents" jsonschema:"agents with another preset"`
	Groups  []RuleGroup   `json:"groups"`
	Files   []RuleFile    `json:"files"`
	Rules   int           `json:"rules" jsonschema:"how many rules the files have"`
	Tests   int           `json:"tests" jsonschema:"how many tests passed when the rules were read"`
	Since   time.Time     `json:"since" jsonschema:"since when they are in force"`
	Dir     string        `json:"dir,omitempty" jsonschema:"directory of the files, for an owner"`
	Version string        `json:"version"`
	Limits  []RuleLimit   `json:"limits" jsonschema:"the first physical limits of tools"`
}

// AgentPreset is the preset of an agent.
type AgentPreset struct {
	Agent  string `json:"agent"`
	Preset string `json:"preset"`
}

// RuleGroup is a group of agents and people.
type RuleGroup struct {
	Name    string   `json:"name"`
	Members []string `json:"members"`
}

// RuleFile is a file with rules or tests.
type RuleFile struct {
	Name  string `json:"name"`
	Text  string `json:"text"`
	Rules []Rule `json:"rules,omitempty" jsonschema:"where its rules are"`
	// Tests counts the tests of a file with tests, or those in the file of the same name for
	// one with rules.
	Tests int `json:"tests"`
}

// Rule is where a rule is in its file.
type Rule struct {
	Line   int    `json:"line" jsonschema:"its first line"`
	End    int    `json:"end" jsonschema:"its last line"`
	Name   string `json:"name,omitempty" jsonschema:"its @id"`
	Permit bool   `json:"permit" jsonschema:"false if it forbids"`
}

// RuleLimit is a physical limit of a tool.
type RuleLimit struct {
	Device string `json:"device"`
	Tool   string `json:"tool"`
	Text   string `json:"text"`
}

// TestRulesOutput is the result of TestRules.
type TestRulesOutput struct {
	Rules    int           `json:"rules"`
	Tests    int           `json:"tests"`
	Problems []RuleProblem `json:"problems" jsonschema:"why the files cannot come into force; empty if they can"`
	// Changed reports whether the files differ from what is in force.
	Changed bool `json:"changed" jsonschema:"whether the files differ from what is in force"`
}

// RuleProblem is why rules cannot be used.
type RuleProblem struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

// Rules returns what is in force.
func (a *API) Rules(_ context.Context, who ferrule.Principal, _ RulesInput) (RulesOutput, error) {
	if err := Allowed(who, ferrule.ScopeRead); err != nil {
		return RulesOutput{}, err
	}
	out := a.parts.Rules.Rules()
	out.Limits = slices.DeleteFunc(out.Limits, func(l RuleLimit) bool { return !a.parts.Agents.Sees(who, l.Device) })
	if !who.Scopes.Has(ferrule.ScopeAdmin) {
		out.Dir = ""
	}
	return out, nil
}

// ExplainPolicy returns the verdict on a call that is not made.
func (a *API) ExplainPolicy(ctx context.Context, who ferrule.Principal, in builtin.ExplainPolicyInput) (builtin.ExplainPolicyOutput, error) {
	return Builtin[builtin.ExplainPolicyOutput](ctx, a, who, "explain_policy", in)
}

// TestRules reads the files, checks them and runs their tests. One run at a time.
func (a *API) TestRules(_ context.Context, who ferrule.Principal, _ RulesInput) (TestRulesOutput, error) {
	if err := Allowed(who, ferrule.ScopeAdmin); err != nil {
		return TestRulesOutput{}, err
	}
	if !a.testing.TryLock() {
		return TestRulesOutput{}, ferrule.Errorf(ferrule.Busy, "the tests are running").WithHint("try again in a moment")
	}
	defer a.testing.Unlock()
	return a.parts.Rules.TestRules()
}

// Reload reads the configuration again.
func (a *API) Reload(ctx context.Context, who ferrule.Principal, in builtin.ReloadInput) (builtin.ReloadOutput, error) {
	return Builtin[builtin.ReloadOutput](ctx, a, who, "reload", in)
}
