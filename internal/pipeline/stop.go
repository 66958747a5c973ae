package pipeline

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Stop can end all changes.
type Stop interface {
	// Enter admits a call that may change the world. It returns an error while changes are
	// stopped. The context ends with a stop; leave is called when the call is over.
	Enter(ctx context.Context, call *ferrule.Call) (running context.Context, leave func(), err error)
}

// stop refuses what changes the world while changes are stopped, and ends what is under
// way when they are.
func stop(s Stop) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if s == nil || call.Target.Tool.Effect == ferrule.Reads {
				return next(ctx, call)
			}
			running, leave, err := s.Enter(ctx, call)
			if err != nil {
				return nil, err
			}
			defer leave()
			return next(running, call)
		}
	}
}
