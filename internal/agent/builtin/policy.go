package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// PolicyExplainer says what the policy decides.
type PolicyExplainer interface {
	// ExplainPolicy returns the verdict on a call that is not made, and the source of the
	// rule that decides.
	ExplainPolicy(call ExplainPolicyInput) (verdict ferrule.Verdict, text string, err error)
}

// Arguments are the arguments of another call.
type Arguments = schema.AnyObject

// ExplainPolicyInput has the arguments of explain_policy.
type ExplainPolicyInput struct {
	Who       string    `json:"who" jsonschema:"name of an agent, or person:NAME"`
	Groups    []string  `json:"groups,omitempty" jsonschema:"groups that the caller's token or role puts it in"`
	Device    string    `json:"device" jsonschema:"ID of the device"`
	Tool      string    `json:"tool" jsonschema:"name of the tool"`
	Arguments Arguments `json:"arguments,omitempty" jsonschema:"arguments of the call"`
}

// ExplainPolicyOutput is the result of explain_policy.
type ExplainPolicyOutput struct {
	Verdict string `json:"verdict" jsonschema:"permit, ask or forbid"`
	Reason  string `json:"reason"`
	Rule    string `json:"rule,omitempty" jsonschema:"file and line of the rule that decides, or its preset"`
	Text    string `json:"text,omitempty" jsonschema:"the rule"`
}

// ExplainPolicy returns the tool explain_policy.
func ExplainPolicy(policy PolicyExplainer) Tool {
	const text = "Says whether the policy permits a call, and by which rule. The call is not made."
	return Typed("explain_policy", text, ferrule.Reads, func(_ context.Context, _ *ferrule.Call, in ExplainPolicyInput) (ExplainPolicyOutput, error) {
		v, rule, err := policy.ExplainPolicy(in)
		return ExplainPolicyOutput{string(v.Ruling), v.Reason, v.Rule, rule}, err
	}).ForPeople()
}
