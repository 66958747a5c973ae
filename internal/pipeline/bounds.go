package pipeline

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Bounds are the physical limits of a tool, which all its callers share, and what is to
// happen after a call.
type Bounds interface {
	// Enter returns an error if the call would exceed a limit of the tool; otherwise it
	// counts the call. leave is called with the error of the call.
	Enter(ctx context.Context, call *ferrule.Call) (leave func(err error), err error)
}

// bounds enforces the physical limits of a tool, at the node that holds the device.
func bounds(b Bounds) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if tool := call.Target.Tool; b == nil || call.Target.Remote || call.Operation.OfJob() || tool.Effect == ferrule.Reads && tool.Limits == nil && tool.Lease == nil {
				return next(ctx, call)
			}
			leave, err := b.Enter(ctx, call)
			if err != nil {
				return nil, err
			}
			err = ferrule.Errorf(ferrule.Internal, "the call panicked").AfterSend()
			defer func() { leave(err) }()
			var result *ferrule.Result
			result, err = next(ctx, call)
			return result, err
		}
	}
}
