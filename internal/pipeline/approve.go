package pipeline

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// approve holds back a call to which a person has to agree. Nobody can be asked
// yet, so it goes no further.
func approve() stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if call.Verdict.Ruling == ferrule.Permit {
				return next(ctx, call)
			}
			return nil, ferrule.Errorf(ferrule.Denied, "a person must agree to %s of %s, and nobody can be asked yet: %s", call.Tool, call.Device, why(call.Verdict)).
				WithHint("a policy that permits it lets it through")
		}
	}
}
