package pipeline

import (
	"context"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Policy decides on a resolved call with valid arguments. It is a pure function
// of the call and must be safe for concurrent use.
type Policy func(call *ferrule.Call) ferrule.Verdict

// permitAll is the policy if none is configured.
func permitAll(*ferrule.Call) ferrule.Verdict {
	return ferrule.Verdict{Ruling: ferrule.Permit, Reason: "no policy is configured"}
}

// authorize refuses what the caller's credential does not permit, or the policy forbids, and
// stores the verdict in the call. If the node that a call comes from requires approval, this
// node does not permit it without.
func authorize(policy Policy) stage {
	if policy == nil {
		policy = permitAll
	}
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if call.Stops() {
				call.Verdict = ferrule.Verdict{Ruling: ferrule.Permit, Reason: "everybody may stop devices"}
				return next(ctx, call)
			}
			if call.Operation.OfJob() {
				call.Verdict = ferrule.Verdict{Ruling: ferrule.Permit, Reason: "it belongs to a call that was permitted"}
				return next(ctx, call)
			}
			if err := withinScopes(call); err != nil {
				return nil, err
			}
			before := call.Verdict
			call.Verdict = policy(call)
			if call.Via != "" && before.Ruling == ferrule.Ask && call.Verdict.Ruling == ferrule.Permit {
				call.Verdict = before
			}
			switch call.Verdict.Ruling {
			case ferrule.Permit, ferrule.Ask:
				return next(ctx, call)
			}
			e := ferrule.Errorf(ferrule.Denied, "%s of %s is forbidden: %s", call.Tool, call.Device, reason(call.Verdict)).
				WithHint("the owner of this gateway decides on it; retrying does not help")
			if call.Operation == ferrule.CallTool {
				e.Hint += fmt.Sprintf(". The owner sees the rule with `ferrule policy explain %s %s %s`", call.Principal, call.Device, call.Tool)
			}
			return nil, e
		}
	}
}

// withinScopes refuses a call that needs more than the caller's credential permits. The
// gateway itself has none.
func withinScopes(call *ferrule.Call) error {
	who := call.Principal
	lacks := who.Lacks(call.Target.Device, call.Operation, call.Target.Tool)
	if lacks == 0 {
		return nil
	}
	call.Verdict = ferrule.Verdict{Ruling: ferrule.Forbid, Reason: "it needs the scope " + lacks.String()}
	has := who.Scopes.String()
	if has == "" {
		has = "none"
	}
	e := ferrule.Errorf(ferrule.Denied, "%s of %s needs the scope %s, and %s has only: %s", call.Tool, call.Device, lacks, who, has)
	switch {
	case who.CanStepUp():
		return e.WithHint("log in again and ask for the scope %s; retrying without it does not help", lacks)
	case who.Auth == ferrule.AuthLogin:
		return e.WithHint("an owner of this gateway can give you another role with `ferrule people`")
	}
	return e.WithHint("retrying does not help. The owner of this gateway can give %s a token with that scope: `ferrule token --help`, or auth.tokens in the configuration", who.Name)
}

// reason returns the reason of a verdict; it is never empty.
func reason(v ferrule.Verdict) string {
	if v.Reason == "" {
		return "no reason given"
	}
	return v.Reason
}
