package watch

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// LostCall is a call that an earlier run has begun, and whose outcome is not in the mark.
type LostCall struct {
	ID, Device, Tool, Node string
	Began                  time.Time
	// Changes is what Parts.Changes returned.
	Changes bool
	key     string // of the mark
}

// left returns the calls of earlier runs of this node that have no outcome.
func (k *Keeper) left() (calls []LostCall) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, m := range k.marks {
		w := k.watches[m.Watch]
		if m.Intent == "" || w == nil || m.Node != k.parts.Node && k.parts.Shared != nil {
			continue
		}
		c := LostCall{ID: m.Intent, Node: m.Node, Began: begunAt(m.Intent), Changes: m.Changes, key: key}
		if w.Call != nil {
			c.Device, c.Tool = w.Call.Device, w.Call.Tool
		}
		calls = append(calls, c)
	}
	return calls
}

// callID returns the ID of a call that a watch begins at a time.
func callID(watch string, at time.Time) string {
	return "watch-" + watch + "-" + strconv.FormatInt(at.UnixMicro(), 36)
}

// begunAt returns the time in the ID of a call; zero if there is none.
func begunAt(id string) time.Time {
	at, err := strconv.ParseInt(id[strings.LastIndex(id, "-")+1:], 36, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(at)
}

// recover records and reports what became of the calls that earlier runs have left. Until then,
// their watches do not call for the same device.
func (k *Keeper) recover(ctx context.Context, calls []LostCall) {
	known := make([]error, len(calls))
	for i, c := range calls {
		known[i] = ferrule.Errorf(ferrule.Unanswered, "the gateway stopped while %s of %s was running, and its outcome is not known", c.Tool, c.Device)
	}
	if k.parts.Lost != nil {
		known = k.parts.Lost(ctx, calls)
	}
	if ctx.Err() != nil {
		return // the next run looks again
	}
	for i, c := range calls {
		var report func()
		k.mu.Lock()
		if m := k.marks[c.key]; m != nil && m.Intent == c.ID {
			report = k.lose(m, known[i])
			if k.synced { // else another node may have taken the device over, and its mark is newer
				k.shareMark(m)
			}
		}
		k.mu.Unlock()
		if report == nil {
			continue
		}
		if err := k.save(c.key); err != nil {
			k.parts.Log.Warn("the state of a watch is not saved", "err", err)
		}
		report()
	}
}

// lose ends a call of an earlier run or of another node: nothing is repeated. It returns what
// reports the outcome. It is called with mu held.
func (k *Keeper) lose(m *mark, err error) (report func()) {
	e := &edge{id: m.Intent, hit: condition.Hit{Device: m.Device, Time: m.Fired, Value: m.Value}}
	if m.Outcome != nil && m.Outcome.Hit != nil {
		e.hit = *m.Outcome.Hit
	}
	w := k.watches[m.Watch]
	var call *Action
	if w != nil {
		e.hit.Signal, call = w.Condition.Signal, w.Call
	}
	o := outcome(time.Now().UTC(), e, call, err)
	if err != nil {
		o.Message += "; the watch does not call again for the same edge"
	}
	m.Intent, m.Outcome = "", o
	k.dirty[m.key()] = true
	if call == nil {
		return func() {}
	}
	n := Notice{Watch: w.ID, Name: w.Name, Hit: e.hit, Count: m.Hits, Held: m.Held, Unsure: m.Unsure, Call: call.String()}
	return func() {
		k.report(w, e, n, o)
		k.parts.Updated(w.ID)
	}
}
