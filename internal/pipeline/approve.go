package pipeline

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// approve refuses a call that needs the approval of a person, because approvals
// are not implemented yet.
func approve() stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if call.Verdict.Ruling == ferrule.Permit {
				return next(ctx, call)
			}
			return nil, ferrule.Errorf(ferrule.Denied, "%s of %s needs approval, which is not supported yet: %s", call.Tool, call.Device, reason(call.Verdict)).
				WithHint("change the policy to permit it")
		}
	}
}
