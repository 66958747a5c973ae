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

// Journal stores records. Append of a durable record returns when it is on disk, and that of
// an outcome when it is in the file.
type Journal interface {
	Append(e ferrule.Entry, durable bool) error
}

// progress says how far a call got. Stages set it for audit and limit.
type progress struct {
	limited       bool // one of too many: recorded together with others
	changes, sent bool
	stopped       bool // refused because changes are stopped
}

type progressKey struct{}

// audit records the outcome of every call and recovers panics, so that every call
// has an outcome. The outcome of a call that may have changed the world is in the
// journal's file before the caller receives it. Readings are counted, not recorded. What
// succeeded on another node is recorded there.
func audit(journal Journal, counts *readings, limited *refusals, seen visible, log *slog.Logger) stage {
	boot := strings.ToLower(rand.Text()[:8]) // makes call IDs unique across restarts
	var calls atomic.Uint64
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			if call.ID == "" {
				call.ID = boot + "-" + strconv.FormatUint(calls.Add(1), 10)
			}
			start := time.Now()
			done := &progress{}
			ctx = ferrule.WithLogger(context.WithValue(ctx, progressKey{}, done), log, call)
			result, err := protect(ctx, call, next, done)
			if isReading(call) {
				return result, counts.add(err)
			}
			if err == nil && done.sent && call.Target.Remote {
				return result, nil // the node that holds the device has recorded it
			}
			if unfinished(call, result, err) {
				return result, err // the outcome is recorded when the job has ended
			}
			done.changes = done.changes || changedByJob(call) && !call.Target.Remote
			entry := record(call, ferrule.Outcome)
			entry.Took = ferrule.Duration(time.Since(start))
			if call.Operation == ferrule.PollJob && !call.Job.Began.IsZero() {
				entry.Took = ferrule.Duration(max(time.Since(call.Job.Began), 0))
			}
			if err != nil {
				e := advise(call, seen, ferrule.AsError(err))
				entry.Code, entry.Message, entry.MayHaveRun = e.Code, e.Message, e.MayHaveRun()
				err = e
			}
			if !done.changes { // a caller can make such calls without end
				shorten(&entry)
			}
			if done.limited {
				limited.record(entry)
				return result, err
			}
			if jerr := appendSoon(journal, entry, done.changes, call.Urgent || call.Stops()); jerr != nil {
				ferrule.Logger(ctx).Error("outcome not recorded", "err", jerr)
			}
			return result, err
		}
	}
}

// protect calls next and turns a panic into an error.
func protect(ctx context.Context, call *ferrule.Call, next ferrule.Handler, done *progress) (result *ferrule.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			ferrule.Logger(ctx).Error("call panicked\n"+string(debug.Stack()), "err", r)
			e := ferrule.Errorf(ferrule.Internal, "internal error: %v", r).
				WithHint("this is a bug in Ferrule; please report it with the gateway's log")
			e.Sent = done.sent
			result, err = nil, e
		}
	}()
	return next(ctx, call)
}

// record returns the journal entry of a call.
func record(call *ferrule.Call, phase ferrule.Phase) ferrule.Entry {
	e := ferrule.Entry{
		Call: call.ID, Phase: phase, Principal: call.Principal, Via: call.Via, Client: call.Client,
		Device: call.Device, Operation: call.Operation, Tool: call.Tool, Args: call.Target.Tool.MaskArgs(call.Args, call.DecodedArgs != nil), Verdict: call.Verdict.Ruling, Rule: call.Verdict.Rule,
	}
	if d := call.Target.Device; d != nil {
		e.Kind = d.Kind
	}
	if call.Operation == ferrule.PollJob { // what ends is the call that began the job
		e.Operation = ferrule.CallTool
	}
	return e
}

// advise adds a hint to an error of a call that may have run: tools that read the
// state of the device.
func advise(call *ferrule.Call, seen visible, e *ferrule.Error) *ferrule.Error {
	const limit = 3
	m := call.Target.Manifest
	if m == nil || e.Hint != "" || !e.MayHaveRun() || call.Target.Tool.Effect == ferrule.Reads {
		return e
	}
	var tools []string
	for i := range m.Tools {
		if t := &m.Tools[i]; t.Effect == ferrule.Reads && seen.tool(call.Principal, call.Target.Device, t) {
			tools = append(tools, t.Name)
		}
	}
	if len(tools) == 0 {
		return e
	}
	return e.WithHint("check the device before retrying, for example with %s", strings.Join(tools[:min(limit, len(tools))], ", "))
}
