package pipeline

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// cache answers from memory for as long as the tool's owner configured, or for a
// read-only tool as long as usual. A call that may change something drops all
// answers of its device, before it is sent and after it has ended.
//
// The caller is not part of the key: authorize runs before, and a device does not
// know who is calling. The gateway's own tools do know, so their answers are not
// cached. Answers of other nodes are cached there: that node decides who gets them, and
// may ask a person first.
func cache(usual time.Duration, known *answers) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (result *ferrule.Result, err error) {
			device, tool := call.Target.Device, call.Target.Tool
			lifetime, changes := cacheLifetime(tool, usual), tool.Effect != ferrule.Reads
			if isReading(call) {
				lifetime = 0
			}
			if device.ID == ferrule.GatewayID || call.Target.Remote || lifetime <= 0 && !changes {
				return next(ctx, call)
			}
			var key answerKey
			if lifetime > 0 {
				if key, err = keyOf(call); err != nil {
					return nil, err
				}
				if cached := known.find(key, lifetime); cached != nil {
					return cached, nil
				}
			}
			generation := known.begin(device.ID, changes)
			defer func() {
				var fresh *ferrule.Result // nil if the call failed or panicked
				if lifetime > 0 && err == nil {
					fresh = result
				}
				known.end(device.ID, changes, generation, key, fresh)
			}()
			return next(ctx, call)
		}
	}
}

// cacheLifetime returns how long an answer of a tool is cached.
func cacheLifetime(t *ferrule.Tool, usual time.Duration) time.Duration {
	switch {
	case t.Cache != nil:
		return time.Duration(*t.Cache)
	case t.Effect == ferrule.Reads:
		return usual
	}
	return 0
}

// answerKey identifies equal calls. It includes since, so that a device that
// reconnected is asked again.
type answerKey struct {
	device    string
	kind      ferrule.Kind
	since     int64
	operation ferrule.Operation
	tool      string
	args      string
}

// keyOf returns the key of a call. The order of members in the arguments does not
// matter. Numbers keep their digits: a device may distinguish numbers that are
// equal as doubles.
func keyOf(call *ferrule.Call) (answerKey, error) {
	args, err := schema.Encode(call.DecodedArgs)
	if err != nil {
		return answerKey{}, ferrule.Errorf(ferrule.Internal, "encoding the arguments of %s: %w", call.Tool, err)
	}
	dev := call.Target.Device
	return answerKey{dev.ID, dev.Kind, dev.Since.UnixNano(), call.Operation, call.Tool, string(args)}, nil
}
