package pipeline

import (
	"context"
	"crypto/rand"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Journal keeps records. Append returns nil once a record that is to be durable
// is on disk.
type Journal interface {
	Append(e ferrule.Entry, durable bool) error
}

// touched is how the two ends of audit know of each other: it tells whether the
// call got as far as the device.
type touched struct{ changes, sent bool }

type touchedKey struct{}

// audit records the outcome of every call, and sees to it that every call has
// one: a stage or a device that panics costs that call and nothing else. The
// outcome of a call that may have changed the world is on disk before the
// caller hears of it. Readings are counted, and not recorded.
func audit(journal Journal, taken *readings, log *slog.Logger) stage {
	boot := strings.ToLower(rand.Text()[:8]) // so that IDs differ between runs
	var calls atomic.Uint64
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if call.ID == "" {
				call.ID = boot + "-" + strconv.FormatUint(calls.Add(1), 10)
			}
			start := time.Now()
			mark := &touched{}
			result, err := guard(context.WithValue(ctx, touchedKey{}, mark), call, next, mark, log)
			if isReading(call) {
				return result, taken.add(err)
			}
			entry := record(call, ferrule.Outcome)
			entry.Took = ferrule.Duration(time.Since(start))
			if err != nil {
				e := advise(call, ferrule.AsError(err))
				entry.Code, entry.Message, entry.MayHaveRun = e.Code, e.Message, e.MayHaveRun()
				err = e
			}
			if jerr := journal.Append(entry, mark.changes); jerr != nil {
				log.Error("the outcome of a call was not recorded", "call", call.ID, "device", call.Device, "tool", call.Tool, "err", jerr)
			}
			return result, err
		}
	}
}

// guard calls next and turns a panic into an error.
func guard(ctx context.Context, call *ferrule.Call, next ferrule.Handler, mark *touched, log *slog.Logger) (result *ferrule.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("a call panicked\n"+string(debug.Stack()), "call", call.ID, "device", call.Device, "tool", call.Tool, "err", r)
			e := ferrule.Errorf(ferrule.Internal, "the gateway failed at this call: %v", r).
				WithHint("this is a fault of Ferrule; please report it with the lines that the gateway logged")
			e.Sent = mark.sent
			result, err = nil, e
		}
	}()
	return next(ctx, call)
}

// record is the entry of a call.
func record(call *ferrule.Call, phase ferrule.Phase) ferrule.Entry {
	return ferrule.Entry{
		Call: call.ID, Phase: phase, Principal: call.Principal,
		Device: call.Device, Operation: call.Operation, Tool: call.Tool, Args: call.Args,
	}
}

// advise adds to an error that leaves open whether the call ran how to find out,
// if the device has tools that only look.
func advise(call *ferrule.Call, e *ferrule.Error) *ferrule.Error {
	const most = 3
	m := call.Target.Manifest
	if m == nil || e.Hint != "" || !e.MayHaveRun() || call.Target.Tool.Effect == ferrule.Reads {
		return e
	}
	var looks []string
	for i := range m.Tools {
		if t := &m.Tools[i]; t.Effect == ferrule.Reads && t.Quarantine == "" && call.Principal.CanCall(t) {
			looks = append(looks, t.Name)
		}
	}
	if len(looks) == 0 {
		return e
	}
	return e.WithHint("before calling it again, look: %s", strings.Join(looks[:min(most, len(looks))], ", "))
}
