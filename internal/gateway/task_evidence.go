package gateway

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/measure/waits"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// lostCalls says what is known about calls that a restart interrupted, according to the journal
// of this node.
type lostCalls struct {
	data, node, boot string
	records          *taskRecords
	// whole means that the journal has the intent of each change before it is sent: none is
	// sent by another node, and none is lost by a power cut.
	whole bool

	mu    sync.Mutex
	calls map[string]callEvidence // that were looked for
	// complete means that no record is missing.
	complete bool
}

// callEvidence is what is known about one call.
type callEvidence struct {
	intent  bool
	outcome *ferrule.Entry // nil if there is none
}

// clockSkew is by how much the clock of this machine may have been set back.
const clockSkew = time.Hour

// explain returns what is known about the call of a task that was interrupted.
func (l *lostCalls) explain(ctx context.Context, t *ferrule.Task) *ferrule.Error {
	found, complete := l.find(ctx, t)
	return interrupted(t, found, complete && l.hasIntent(t))
}

// hasIntent reports whether the journal of this node has the intent of a call, if it was sent
// and no record is missing. The gateway's own tools call others.
func (l *lostCalls) hasIntent(t *ferrule.Task) bool {
	return l.whole && t.Node == l.node && t.Call != "" && t.Changes && t.Device != ferrule.GatewayID
}

// ofWatches returns what is known about calls of watches that were interrupted: nil for those
// that have run.
func (l *lostCalls) ofWatches(ctx context.Context, calls []watch.LostCall) []error {
	found, since := make(map[string]callEvidence, len(calls)), time.Now()
	for _, c := range calls {
		if found[c.ID] = (callEvidence{}); c.Began.Before(since) {
			since = c.Began
		}
	}
	complete := readEvidence(ctx, l.data, found, since.Add(-clockSkew)) == nil
	known := make([]error, len(calls))
	for i, c := range calls {
		evidence := found[c.ID]
		if evidence.outcome != nil && evidence.outcome.Code == "" {
			continue
		}
		t := &ferrule.Task{Call: c.ID, Device: c.Device, Tool: c.Tool, Node: c.Node, Changes: c.Changes}
		known[i] = interrupted(t, evidence, complete && l.hasIntent(t))
	}
	return known
}

// interrupted returns what is known about a call that a restart interrupted.
func interrupted(t *ferrule.Task, found callEvidence, notSent bool) *ferrule.Error {
	const after = "check the device before you call it again"
	switch {
	case t.Device == ferrule.GatewayID && t.Tool == waits.Tool && (found.outcome == nil || found.outcome.Code == ""): // it moves nothing, and its outcome is in its result only
		return ferrule.Errorf(ferrule.Cancelled, "the gateway stopped while it waited, and the wait has ended; the condition may have been met meanwhile").
			WithHint("call wait_for again; a watch lasts across restarts")
	case found.outcome != nil && found.outcome.Code == "":
		return ferrule.Errorf(ferrule.Unanswered, "%s of %s has run, but the gateway stopped before its result was stored", t.Tool, t.Device).WithHint(after)
	case found.outcome != nil && !found.outcome.MayHaveRun:
		return ferrule.Errorf(found.outcome.Code, "%s", found.outcome.Message)
	case found.outcome != nil:
		return ferrule.Errorf(ferrule.Unanswered, "%s", found.outcome.Message).WithHint(after)
	case !found.intent && notSent:
		return ferrule.Errorf(ferrule.Cancelled, "the gateway stopped before %s was sent to %s", t.Tool, t.Device).WithHint("call it again")
	}
	return tasks.Lost(t)
}

// find returns what the journal knows about the call of a task of an earlier run. It reports
// false if records may be missing. It reads the journal once for all such tasks.
func (l *lostCalls) find(ctx context.Context, t *ferrule.Task) (callEvidence, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, looked := l.calls[t.Call]; !looked {
		calls, since := l.records.earlier(l.node, l.boot)
		if calls[t.Call] = true; since.IsZero() || t.Created.Before(since) {
			since = t.Created
		}
		l.calls = make(map[string]callEvidence, len(calls))
		for call := range calls {
			l.calls[call] = callEvidence{}
		}
		l.complete = readEvidence(ctx, l.data, l.calls, since.Add(-clockSkew)) == nil
	}
	return l.calls[t.Call], l.complete
}

var errRecordsMissing = errors.New("records of the journal are missing")

// readEvidence finds the records of calls since a time.
func readEvidence(ctx context.Context, data string, calls map[string]callEvidence, since time.Time) error {
	r, err := journal.OpenReader(data)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.SkipTo(since, math.MaxInt64); err != nil {
		return err
	}
	var missing error
	err = r.Read(ctx, false, func(l ferrule.JournalLines) error {
		for entry, err := range journal.Entries(l.Lines) {
			if err != nil {
				missing = err
				continue
			}
			switch entry.Phase {
			case ferrule.JournalGap, ferrule.JournalCut:
				missing = errRecordsMissing
			}
			found, wanted := calls[entry.Call]
			if !wanted || entry.Operation != ferrule.CallTool {
				continue
			}
			switch entry.Phase {
			case ferrule.Intent:
				found.intent = true
			case ferrule.Outcome:
				found.outcome = &entry
			}
			calls[entry.Call] = found
		}
		return nil
	})
	if err == nil {
		err = missing
	}
	return err
}
