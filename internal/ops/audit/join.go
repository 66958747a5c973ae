package audit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxOpen limits the intents that are kept for their outcome.
const maxOpen = 1 << 16

// joiner joins the intent and the outcome of each call. It gives each record its place in
// the listing: a call belongs where it began.
type joiner struct {
	// separate keeps intents as records of their own.
	separate bool
	open     map[callKey]Record // intents without an outcome
	// listed has the intents that were returned without an outcome, because none was
	// expected any more or all records were read. Some outcomes come later: jobs of devices
	// can outlive the gateway.
	listed map[callKey]Record
	clocks map[origin]*clock
	count  int // of records
}

// clock is how far the records of a chain came.
type clock struct {
	latest time.Time
	// check is when the first open intent may be too old for an outcome; zero without one.
	check time.Time
}

// callKey identifies a call. The ID of a call is made by its node.
type callKey struct {
	origin
	call string
}

// place is the place of a record in a listing: by time, then by arrival. Each chain keeps
// its own order, even if its clock was set back.
type place struct {
	when  time.Time
	count int
}

func (p place) compare(q place) int {
	return cmp.Or(p.when.Compare(q.when), cmp.Compare(p.count, q.count))
}

func newJoiner(separate bool) *joiner {
	return &joiner{separate: separate, open: make(map[callKey]Record), listed: make(map[callKey]Record), clocks: make(map[origin]*clock)}
}

// add takes the next record of a chain, and returns what is complete with it.
func (j *joiner) add(r Record) (all []Record) {
	key := callKey{origin{r.Node, r.Chain}, r.Call}
	now := j.clocks[key.origin]
	if now == nil {
		now = &clock{}
		j.clocks[key.origin] = now
	}
	if r.Time.After(now.latest) {
		now.latest = r.Time
	}
	j.count++
	r.Began, r.at = r.Time, place{now.latest, j.count}
	switch r.Phase {
	case ferrule.Intent:
		r.changes, r.MayHaveRun = true, !j.separate // unless its outcome follows
		if len(j.open)+len(j.listed) >= maxOpen {
			all = j.rest()
			clear(j.open)
			clear(j.listed)
		}
		j.open[key] = r
		if j.separate {
			return []Record{r}
		}
		if now.check.IsZero() {
			now.check = r.at.when.Add(maxCallTime)
		}
		return all
	case ferrule.Outcome:
		r.Began = r.Time.Add(-time.Duration(r.Took))
		intent, ok := j.open[key]
		if !ok {
			intent, ok = j.listed[key]
			r.listed = ok
		}
		delete(j.open, key)
		delete(j.listed, key)
		r.changes = ok
		switch {
		case j.separate:
		case ok:
			r.Began, r.at = intent.Time, intent.at
		default:
			r.at.when = r.at.when.Add(-time.Duration(r.Took))
		}
	}
	return []Record{r}
}

// lost returns the calls of a chain that are too old for an outcome.
func (j *joiner) lost(from origin) (all []Record) {
	now := j.clocks[from]
	if j.separate || now == nil || now.check.IsZero() || !now.latest.After(now.check) {
		return nil
	}
	now.check = time.Time{}
	for key, r := range j.open {
		switch end := r.at.when.Add(maxCallTime); {
		case key.origin != from:
		case now.latest.After(end):
			all = append(all, r)
		case now.check.IsZero() || end.Before(now.check):
			now.check = end
		}
	}
	return j.list(all)
}

// rest returns all calls without an outcome that were not returned yet.
func (j *joiner) rest() []Record {
	if j.separate {
		return nil
	}
	return j.list(slices.Collect(maps.Values(j.open)))
}

// list marks calls as returned, and sorts them.
func (j *joiner) list(calls []Record) []Record {
	for _, r := range calls {
		key := callKey{origin{r.Node, r.Chain}, r.Call}
		delete(j.open, key)
		j.listed[key] = r
	}
	slices.SortFunc(calls, func(a, b Record) int { return a.at.compare(b.at) })
	return calls
}
