package pipeline

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// intent records on disk that the world is about to be changed. If that cannot
// be recorded, it is not changed. A reading is none, whatever its tool may change: the
// device or its owner wants the tool to be called all the time.
func intent(journal Journal) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			mark, _ := ctx.Value(touchedKey{}).(*touched)
			if call.Target.Tool.Effect != ferrule.Reads && !isReading(call) {
				if err := journal.Append(record(call, ferrule.Intent), true); err != nil {
					return nil, ferrule.Errorf(ferrule.Denied, "the call cannot be recorded, so it was not made: %w", err).
						WithHint("is the disk of the data directory full?")
				}
				mark.changes = true
			}
			mark.sent = true
			return next(ctx, call)
		}
	}
}
