package pipeline

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// MaxDeadline is the longest that any call may take.
const MaxDeadline = 10 * time.Minute

// deadline bounds a call: by what the caller says, else the tool, else the
// gateway. What it chose stands in the call from then on.
func deadline(usual time.Duration) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			limit := time.Duration(call.Timeout)
			if limit <= 0 {
				limit = time.Duration(call.Target.Tool.Deadline)
			}
			if limit <= 0 {
				limit = usual
			}
			limit = min(limit, MaxDeadline)
			call.Timeout = ferrule.Duration(limit)
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return next(ctx, call)
		}
	}
}
