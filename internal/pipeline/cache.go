package pipeline

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// cache answers from memory what a device said a moment ago: for as long as the
// tool's owner says, else, for a tool that only reads, for as long as is usual.
// A call that may change something drops what is kept of its device, before it
// is sent and after it has ended.
//
// Who is asking plays no part: authorize stands before, so whoever gets here may
// have the answer, and a device does not know who asks. The gateway does, so what
// its own tools say is not kept.
func cache(usual time.Duration, kept *answers) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (result *ferrule.Result, err error) {
			device, tool := call.Target.Device, call.Target.Tool
			life, changes := lifetime(tool, usual), tool.Effect != ferrule.Reads
			if isReading(call) {
				life = 0
			}
			if device.ID == ferrule.GatewayID || life <= 0 && !changes {
				return next(ctx, call)
			}
			var asked question
			if life > 0 {
				if asked, err = questionOf(call); err != nil {
					return nil, err
				}
				if known := kept.find(asked, life); known != nil {
					return known, nil
				}
			}
			mark := kept.begin(device.ID, changes)
			defer func() {
				var fresh *ferrule.Result // none of a call that failed, or panicked
				if life > 0 && err == nil {
					fresh = result
				}
				kept.end(device.ID, changes, mark, asked, fresh)
			}()
			return next(ctx, call)
		}
	}
}

// lifetime is how long an answer of a tool is kept.
func lifetime(t *ferrule.Tool, usual time.Duration) time.Duration {
	switch {
	case t.Cache != nil:
		return time.Duration(*t.Cache)
	case t.Effect == ferrule.Reads:
		return usual
	}
	return 0
}

// question is what makes two calls the same: for the same, with the same arguments, of
// the same tool, of a device that has been there all the time.
type question struct {
	device string
	kind   ferrule.Kind
	since  int64
	act    ferrule.Operation
	tool   string
	args   string
}

// questionOf writes the arguments in one way, whatever the order of their
// members. Numbers keep their digits: the canonical form would make one of two
// that a double cannot tell apart, and a device may.
func questionOf(call *ferrule.Call) (question, error) {
	args, _, err := schema.DecodeArgs(call.Args)
	if err != nil {
		return question{}, ferrule.Errorf(ferrule.Internal, "the arguments of %s were valid a moment ago: %w", call.Tool, err)
	}
	text, err := schema.Encode(args)
	if err != nil {
		return question{}, ferrule.Errorf(ferrule.Internal, "the arguments of %s cannot be written: %w", call.Tool, err)
	}
	dev := call.Target.Device
	return question{dev.ID, dev.Kind, dev.Since.UnixNano(), call.Operation, call.Tool, string(text)}, nil
}
