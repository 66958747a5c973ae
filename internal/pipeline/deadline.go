package pipeline

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// MaxDeadline is the maximum time of a call to a device.
const MaxDeadline = 10 * time.Minute

// ownDeadline returns the deadline of a tool of the gateway itself, which may wait for longer
// than a device may work. It is 0 for a tool of a device.
func ownDeadline(call *ferrule.Call) time.Duration {
	if call.Target.Device.ID != ferrule.GatewayID {
		return 0
	}
	return time.Duration(call.Target.Tool.Deadline)
}

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
			limit = min(limit, max(MaxDeadline, ownDeadline(call)))
			call.Timeout = ferrule.Duration(limit)
			if call.Verdict.Ruling == ferrule.Ask && call.Target.Remote {
				limit += approval
			}
			if outlives(call) { // the stage jobs limits the time until the job has begun
				ctx = context.WithValue(ctx, beginTimeKey{}, limit)
			} else {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			result, err := next(ctx, call)
			if err == nil && result.Job == nil {
				err = checkAnswer(ctx, call, result)
			}
			if err != nil {
				return nil, err
			}
			return result, nil
		}
	}
}
