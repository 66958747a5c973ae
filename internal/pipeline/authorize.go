package pipeline

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Policy decides about a call that is resolved and whose arguments fit. It looks
// at nothing else, changes nothing, and is asked from many goroutines.
type Policy func(call *ferrule.Call) ferrule.Verdict

// noPolicy permits every call that gets as far.
func noPolicy(*ferrule.Call) ferrule.Verdict {
	return ferrule.Verdict{Ruling: ferrule.Permit, Reason: "no policy is configured"}
}

// authorize refuses what the policy forbids. The verdict stands in the call from
// then on.
func authorize(policy Policy) stage {
	if policy == nil {
		policy = noPolicy
	}
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			call.Verdict = policy(call)
			switch call.Verdict.Ruling {
			case ferrule.Permit, ferrule.Ask:
				return next(ctx, call)
			}
			return nil, ferrule.Errorf(ferrule.Denied, "%s of %s is forbidden: %s", call.Tool, call.Device, why(call.Verdict)).
				WithHint("whoever runs this gateway decides about it; calling again does not help")
		}
	}
}

// why is the reason of a verdict, in any case.
func why(v ferrule.Verdict) string {
	if v.Reason == "" {
		return "no reason is given"
	}
	return v.Reason
}
