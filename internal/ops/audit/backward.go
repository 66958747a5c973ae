package audit

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

// Call is a call with its records, or a record that does not belong to a call.
type Call struct {
	// Record is the outcome. A call without one has its intent, or the request of an
	// approval.
	Record
	// Steps are the other records of the call that were found, the oldest first: requests and
	// answers of approvals, the intent, and questions.
	Steps []Record
}

// Open reports whether the call has no outcome.
func (c *Call) Open() bool { return c.Phase == ferrule.Intent || c.Phase == ferrule.ApprovalStep }

// hashLen is the length of the hash at the start of a line.
const hashLen = 64

// parse returns the records of lines. It leaves out damaged lines; a verification finds them.
func parse(l ferrule.JournalLines) (all []Record) {
	for line := range bytes.Lines(l.Lines) {
		for e, err := range journal.Entries(line) {
			if err != nil {
				continue
			}
			r := Record{Node: l.Node, Chain: l.Chain, Hash: string(line[:hashLen]), Entry: e, Began: e.Time}
			if e.Phase == ferrule.Outcome {
				r.Began = e.Time.Add(-time.Duration(e.Took))
			}
			all = append(all, r)
		}
	}
	return all
}

// backward joins records to calls. It gets them from the newest to the oldest, so it knows
// the outcome of a call first.
type backward struct {
	limit int
	match func(*Call) bool

	calls []*Call // that match
	known map[callKey]*Call
	early map[callKey][]Record // steps of calls that follow
}

func newBackward(limit int, match func(*Call) bool) *backward {
	return &backward{limit: limit, match: match, known: make(map[callKey]*Call), early: make(map[callKey][]Record)}
}

// full reports whether as many calls were found as wanted.
func (j *backward) full() bool { return len(j.calls) >= j.limit }

// requested ends the message of an approval that begins.
const requested = ": requested"

// isDecision reports whether a record says what became of a request for approval.
func isDecision(r *Record) bool {
	if r.Phase != ferrule.ApprovalStep {
		return false
	}
	_, step, _ := strings.Cut(r.Message, " of "+r.Tool+" on "+r.Device+": ")
	for _, word := range []string{"allowed", "denied", "expired", "ended"} {
		if strings.HasPrefix(step, word) {
			return true
		}
	}
	return false
}

// add takes the next older record.
func (j *backward) add(r Record) {
	key := callKey{origin{r.Node, r.Chain}, r.Call}
	switch r.Phase {
	case ferrule.JournalCheckpoint:
		return
	case ferrule.Outcome, ferrule.Intent, ferrule.ApprovalStep, ferrule.Asked:
	default:
		key.call = "" // a record of its own
	}
	if key.call == "" {
		j.begin(&Call{Record: r})
		return
	}
	if c := j.known[key]; c != nil {
		c.Steps = append([]Record{r}, c.Steps...)
		c.changes = c.changes || r.Phase == ferrule.Intent
		return
	}
	starts := r.Phase == ferrule.Outcome || r.Phase == ferrule.Intent || strings.HasSuffix(r.Message, requested)
	if !starts {
		if len(j.early) < maxOpen {
			j.early[key] = append([]Record{r}, j.early[key]...)
		}
		return
	}
	r.changes = r.Phase == ferrule.Intent
	r.MayHaveRun = r.MayHaveRun || r.changes
	c := &Call{Record: r, Steps: j.early[key]}
	delete(j.early, key)
	if len(j.known) < maxOpen {
		j.known[key] = c
	}
	j.begin(c)
}

func (j *backward) begin(c *Call) {
	if j.match(c) {
		j.calls = append(j.calls, c)
	}
}

// drop removes calls.
func (j *backward) drop(gone func(*Call) bool) { j.calls = slices.DeleteFunc(j.calls, gone) }

// found returns the calls, the newest first by when they were made.
func (j *backward) found() []Call {
	all := make([]Call, 0, len(j.calls))
	for _, c := range j.calls {
		all = append(all, *c)
	}
	slices.SortStableFunc(all, func(a, b Call) int { return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(b.Seq, a.Seq)) })
	return all
}
