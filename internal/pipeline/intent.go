package pipeline

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// urgentTime is how long a stop, or an urgent call, waits for the disk: it makes something
// safe.
const urgentTime = 100 * time.Millisecond

// intent records on disk that the world is about to change. If that fails, the
// call is not sent. A reading has no intent even if its tool may change something:
// the device or its owner wants the tool to be called all the time. Nor has a call to
// another node, which records it before its device is touched. A stop must not wait for a
// disk: it is recorded by who makes it, and calls of its stop tools as far as possible.
func intent(journal Journal) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			done, _ := ctx.Value(progressKey{}).(*progress)
			if call.Target.Tool.Effect != ferrule.Reads && !isReading(call) && !call.Target.Remote && !call.Stops() {
				err := appendSoon(journal, record(call, ferrule.Intent), true, call.Urgent)
				if err != nil && !call.Urgent {
					return nil, ferrule.Errorf(ferrule.Denied, "the call was not sent because it cannot be recorded: %w", err).
						WithHint("check that the disk of the data directory is not full")
				}
				done.changes = true
			}
			done.sent = true
			return next(ctx, call)
		}
	}
}

// appendSoon appends to the journal. It does not wait long for what is urgent.
func appendSoon(journal Journal, entry ferrule.Entry, durable, urgent bool) error {
	if !urgent {
		return journal.Append(entry, durable)
	}
	recorded := make(chan error, 1)
	go func() { recorded <- journal.Append(entry, durable) }()
	limit := time.NewTimer(urgentTime)
	defer limit.Stop()
	select {
	case err := <-recorded:
		return err
	case <-limit.C:
		return nil // it is recorded when the disk answers
	}
}
