package pipeline

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Hooks are programs and services of the owner that see calls.
type Hooks interface {
	// Before returns an error if a hook refuses the call. It limits its own time.
	Before(ctx context.Context, call *ferrule.Call) error
	// After tells hooks how the call ended. It must not block.
	After(call *ferrule.Call, took time.Duration, err error)
}

// hooks asks the owner's hooks about calls that the policy permits, at the node that holds
// the device, and tells them the outcomes. It stands before the cache, because an answer from
// memory is an answer to a caller that a hook may refuse.
func hooks(h Hooks) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (result *ferrule.Result, err error) {
			if h == nil || !hooked(call) {
				return next(ctx, call)
			}
			start, ended := time.Now(), false
			defer func() {
				if !ended {
					err = ferrule.Errorf(ferrule.Internal, "the call panicked").AfterSend()
				}
				if !unfinished(call, result, err) {
					h.After(call, time.Since(start), err)
				}
			}()
			if call.Operation != ferrule.PollJob { // the hooks have seen the call that began the job
				err = h.Before(ctx, call)
			}
			if err == nil {
				result, err = next(ctx, call)
			}
			ended = true
			return result, err
		}
	}
}

// hooked reports whether hooks see a call. A failing hook must keep nobody from making
// things safe: a stop, the gateway's own calls, such as stop tools and the ends of leases, and
// what only people may call, by which the owner repairs the gateway.
func hooked(call *ferrule.Call) bool {
	own := call.Target.Device.ID == ferrule.GatewayID && call.Target.Tool.UserOnly
	return !call.Stops() && !call.Urgent && call.Principal.Role != ferrule.Gateway && !call.Target.Remote && !own && call.Operation != ferrule.Unsubscribe && call.Operation != ferrule.CancelJob
}
