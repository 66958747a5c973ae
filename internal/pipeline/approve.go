package pipeline

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Approvals asks people about calls.
type Approvals interface {
	// Await returns nil when a person has approved the call, and an error if it must not
	// run. An approval is used up when Await returns.
	Await(ctx context.Context, call *ferrule.Call) error
}

// approve holds a call that needs the approval of a person. The node that holds the
// device asks.
func approve(approvals Approvals) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if call.Verdict.Ruling == ferrule.Permit || call.Target.Remote {
				return next(ctx, call)
			}
			if approvals == nil {
				return nil, ferrule.Errorf(ferrule.Denied, "%s of %s needs approval, and nobody can be asked: %s", call.Tool, call.Device, reason(call.Verdict)).
					WithHint("change the policy to permit it")
			}
			if err := approvals.Await(ctx, call); err != nil {
				return nil, err
			}
			return next(ctx, call)
		}
	}
}
