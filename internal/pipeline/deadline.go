package pipeline

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// MaxDeadline is the maximum time of a call.
const MaxDeadline = 10 * time.Minute

// deadline limits the time of a call to what the caller says, else the tool, else
// the gateway. It stores the limit in the call. The check of the answer is part of
// that time. The wait for an approval is not: a call that the node of the device may hold
// has that time in addition.
func deadline(usual, approval time.Duration) stage {
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
			if call.Verdict.Ruling == ferrule.Ask && call.Target.Remote {
				limit += approval
			}
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			result, err := next(ctx, call)
			if err == nil {
				err = checkAnswer(ctx, call, result)
			}
			if err != nil {
				return nil, err
			}
			return result, nil
		}
	}
}
