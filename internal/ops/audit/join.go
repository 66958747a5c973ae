package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxOpen limits the intents that wait for their outcome.
const maxOpen = 1 << 16

// joiner joins the intent and the outcome of each call.
type joiner struct {
	// separate keeps intents as records of their own.
	separate bool
	open     map[callKey]Record // intents without an outcome
}

// callKey identifies a call. The ID of a call is made by its node.
type callKey struct {
	origin
	call string
}

func newJoiner(separate bool) *joiner {
	return &joiner{separate: separate, open: make(map[callKey]Record)}
}

// add takes the next record of a chain, and returns what is complete with it.
func (j *joiner) add(r Record) []Record {
	key := callKey{origin{r.Node, r.Chain}, r.Call}
	r.Began = r.Time
	switch r.Phase {
	case ferrule.Intent:
		r.changes, r.MayHaveRun = true, !j.separate // unless its outcome follows
		var early []Record
		if len(j.open) >= maxOpen {
			early = j.rest()
			clear(j.open)
		}
		j.open[key] = r
		if j.separate {
			return []Record{r}
		}
		return early
	case ferrule.Outcome:
		r.Began = r.Time.Add(-time.Duration(r.Took))
		if intent, ok := j.open[key]; ok {
			r.changes = true
			delete(j.open, key)
			if !j.separate {
				r.Began = intent.Time
			}
		}
	}
	return []Record{r}
}

// rest returns the calls without an outcome so far. They stay open.
func (j *joiner) rest() (all []Record) {
	if j.separate {
		return nil
	}
	for _, r := range j.open {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq)) })
	return all
}
