package pipeline

import (
	"context"
	"errors"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Stop can end all changes.
type Stop interface {
	// Enter admits a call that may change the world. It returns an error while changes are
	// stopped. The context ends with a stop, whose [ferrule.Error] is its cause; leave is
	// called when the call is over.
	Enter(ctx context.Context, call *ferrule.Call) (running context.Context, leave func(), err error)
}

// stop refuses what changes the world while changes are stopped, and ends what is under
// way when they are.
func stop(s Stop) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			waits := call.Operation == ferrule.PollJob && !call.TakesJob && changedByJob(call)                         // for a job that changes the world
			if s == nil || call.Target.Tool.Effect == ferrule.Reads && !waits || call.Operation == ferrule.CancelJob { // a cancel makes safe
				return next(ctx, call)
			}
			running, leave, err := s.Enter(ctx, call)
			if err != nil && waits { // the job was not stopped: it is cancelled
				var cancel context.CancelCauseFunc
				running, cancel = context.WithCancelCause(ctx)
				cancel(err)
				leave, err = func() {}, nil
			}
			if err != nil {
				done, _ := ctx.Value(progressKey{}).(*progress)
				done.stopped = true
				return nil, err
			}
			defer leave()
			result, err := next(running, call)
			if err != nil {
				return nil, stopped(running, call, err)
			}
			return result, nil
		}
	}
}

// stopped returns the error of a call, which says so if a stop ended it. It is not
// Cancelled, because its caller is still there.
func stopped(running context.Context, call *ferrule.Call, err error) error {
	var why *ferrule.Error
	failed := ferrule.AsError(err)
	if failed.Code != ferrule.Cancelled || !errors.As(context.Cause(running), &why) {
		return err
	}
	e := *why
	e.JobEnded = failed.JobEnded
	if failed.MayHaveRun() {
		e.Code, e.Message = ferrule.Unanswered, call.Tool+" on "+call.Device+" was sent before it was stopped: "+why.Message
		if failed.JobEnded { // it says whether the device was told to stop
			e.Message += "; " + failed.Message
		}
	}
	return &e
}
