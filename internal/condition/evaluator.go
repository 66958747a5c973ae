package condition

import (
	"math"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxGaps is how many gaps a Hit has.
const maxGaps = 16

// evaluator follows one condition for one signal of one device. It has no clock and no
// goroutine: time comes with samples and with Advance.
type evaluator struct {
	condition *Condition
	device    string
	state     bool // the signal is stored when it changes
	since     time.Time

	// armed is set if the condition can be met; fresh until the first sample.
	armed, fresh bool
	last         ferrule.Sample // unless fresh; for Changes, its value is what a change is measured against
	// held is the earliest time since which the condition certainly holds; zero if it does
	// not. value is that of the last sample that said so.
	held  time.Time
	value float64
	// gapEnd is the end of the last known gap.
	gapEnd time.Time
	gaps   []ferrule.Gap
	more   int
}

func newEvaluator(c *Condition, device string, since time.Time) *evaluator {
	return &evaluator{condition: c, device: device, since: since, armed: true, fresh: true}
}

// Add takes a sample and returns a hit if it meets the condition. A hit of a state may be one
// of the time before the sample.
func (e *evaluator) Add(s ferrule.Sample) (hit Hit, met bool) {
	if !finite(s.Value) {
		return e.Gap(ferrule.Gap{From: e.lastTime(s.Time), To: s.Time, Reason: ferrule.Silent})
	}
	if !e.fresh && s.Time.Before(e.last.Time) { // the clock was set back, or the sample is late
		e.held = time.Time{}
		e.gapEnd = time.Time{}
		e.addGap(ferrule.Gap{From: s.Time, To: e.last.Time, Reason: ferrule.Unclear})
	}
	if e.condition.Changes {
		return e.change(s)
	}
	if e.state { // it held until this sample, whatever that says
		hit, met = e.Advance(s.Time.Add(-time.Duration(s.Within)))
	}
	holds, back := e.condition.predicate(s.Value)
	if back {
		e.armed = true
	}
	e.fresh, e.last = false, s
	if !holds {
		e.held = time.Time{}
		return hit, met
	}
	if e.condition.For == 0 {
		if e.armed {
			return e.hit(s.Time, s), true
		}
		return hit, met
	}
	if !e.state && !e.held.IsZero() && !s.Time.Add(-time.Duration(s.Within)).Before(e.deadline()) && e.armed {
		hit, met = e.hit(s.Time, s), true
	}
	e.hold(s)
	return hit, met
}

// hold notes that the condition holds at a sample. Missing samples may follow one that is
// within a gap, so a hold does not begin there.
func (e *evaluator) hold(s ferrule.Sample) {
	if s.Time.Before(e.gapEnd) {
		e.held = time.Time{}
		return
	}
	e.value = s.Value
	if from := s.Time.Add(time.Duration(s.Within)); e.held.IsZero() || from.Before(e.held) {
		e.held = from
	}
}

// change is Add for Changes. A change is measured against the first value, and then against
// the value that was the last change.
func (e *evaluator) change(s ferrule.Sample) (Hit, bool) {
	before, first := e.value, e.fresh
	e.fresh, e.last = false, s
	if first {
		e.value = s.Value
		return Hit{}, false
	}
	if s.Value == before || math.Abs(s.Value-before) <= e.condition.Hysteresis {
		return Hit{}, false
	}
	e.value = s.Value
	return e.hit(s.Time, s), true
}

// Gap says that samples may be missing: what had to hold without a gap begins again. A state
// held until the gap began, which may meet the condition.
func (e *evaluator) Gap(g ferrule.Gap) (hit Hit, met bool) {
	if e.state && !e.condition.Changes {
		hit, met = e.Advance(g.From)
	}
	e.held = time.Time{}
	if g.To.After(e.gapEnd) {
		e.gapEnd = g.To
	}
	e.addGap(g)
	return hit, met
}

// Advance promises that there is no change and no gap until now. A condition with For over a
// state is met by time alone.
func (e *evaluator) Advance(now time.Time) (Hit, bool) {
	next := e.Next()
	if next.IsZero() || now.Before(next) {
		return Hit{}, false
	}
	return e.hit(next, ferrule.Sample{Value: e.value}), true
}

// Next is when Advance would meet the condition; zero if it would not.
func (e *evaluator) Next() time.Time {
	if !e.state || !e.armed || e.held.IsZero() || e.condition.For == 0 {
		return time.Time{}
	}
	return e.deadline()
}

func (e *evaluator) deadline() time.Time { return e.held.Add(time.Duration(e.condition.For)) }

func (e *evaluator) lastTime(otherwise time.Time) time.Time {
	if e.fresh {
		return otherwise
	}
	return e.last.Time
}

// hit returns a hit. The condition cannot be met again before it was false.
func (e *evaluator) hit(at time.Time, s ferrule.Sample) Hit {
	e.armed = e.condition.Changes
	h := Hit{Device: e.device, Signal: e.condition.Signal, Time: at, Value: s.Value, Within: s.Within, Gaps: e.gaps, MoreGaps: e.more}
	e.gaps, e.more = nil, 0
	return h
}

// addGap remembers a gap for the next hit. A gap that continues the one before is one with it.
func (e *evaluator) addGap(g ferrule.Gap) {
	if !g.To.After(e.since) {
		return
	}
	if g.From.Before(e.since) {
		g.From = e.since
	}
	if n := len(e.gaps); n > 0 && !g.From.After(e.gaps[n-1].To) && !g.To.Before(e.gaps[n-1].From) {
		last := &e.gaps[n-1]
		if g.From.Before(last.From) {
			last.From = g.From
		}
		if g.To.After(last.To) {
			last.To = g.To
		}
		last.MaxMissing = 0
		return
	}
	if len(e.gaps) == maxGaps {
		copy(e.gaps, e.gaps[1:])
		e.gaps = e.gaps[:maxGaps-1]
		e.more++
	}
	e.gaps = append(e.gaps, g)
}
