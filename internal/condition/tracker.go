package condition

import (
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Silence reports whether a state in a reading holds while nothing is heard of it and the
// device is online, and how long after a moment that is certain. If it is nil, or reports
// false, only samples prove that a state still holds.
type Silence func(r *ferrule.Reading) (lag time.Duration, holds bool)

// Of calls s, which may be nil.
func (s Silence) Of(r *ferrule.Reading) (lag time.Duration, holds bool) {
	if s == nil {
		return 0, false
	}
	return s(r)
}

// Connection says whether a device has been online without interruption.
type Connection struct {
	online bool
	lost   uint64 // how often it was reported to be offline
}

// Set says whether the device is online.
func (c *Connection) Set(online bool) {
	if c.online = online; !online {
		c.lost++
	}
}

// Tracker evaluates a condition for one signal of a device as its readings arrive. Waits and
// watches share it, so that a condition means the same for both. It must not be used
// concurrently.
type Tracker struct {
	// Hit is called for each hit.
	Hit func(Hit)
	// Cleared is called for each sample that is far enough back for the condition to be met
	// again, after the hit of that sample. It is not called for Changes, and may be nil.
	Cleared func()
	// Oldest is the time before which samples say nothing, if later ones come with them: a
	// device may keep its samples until they are read.
	Oldest time.Time

	eval *evaluator
	conn *Connection
	// lost is that of the connection at the last sample, silent and lag are what Silence
	// says about it.
	lost   uint64
	silent bool
	lag    time.Duration
}

// NewTracker returns a Tracker of a valid condition. Gaps before since are not reported.
func NewTracker(c *Condition, device string, conn *Connection, since time.Time) *Tracker {
	return &Tracker{eval: newEvaluator(c, device, since), conn: conn}
}

// Feed takes the samples and gaps of a batch in order: a gap comes before the samples after
// its begin. Lag and silent are what Silence says about the reading.
func (t *Tracker) Feed(b *ferrule.SampleBatch, lag time.Duration, silent bool) {
	t.eval.state = b.State
	gaps := b.Gaps
	for _, s := range t.current(b) {
		for len(gaps) > 0 && gaps[0].From.Before(s.Time) {
			t.Gap(gaps[0])
			gaps = gaps[1:]
		}
		if hit, met := t.eval.Add(s); met {
			t.Hit(hit)
		}
		if t.Cleared != nil && t.eval.condition.clears(s.Value) {
			t.Cleared()
		}
	}
	for _, g := range gaps {
		t.Gap(g)
	}
	if len(b.Samples) > 0 {
		t.lost, t.silent, t.lag = t.conn.lost, silent, lag
	}
}

// current returns the samples of a batch that are not too old. If all are, the clock of their
// node may be wrong, and none is left out.
func (t *Tracker) current(b *ferrule.SampleBatch) []ferrule.Sample {
	n := len(b.Samples)
	if b.State || n == 0 || b.Samples[n-1].Time.Before(t.Oldest) {
		return b.Samples
	}
	old := func(s ferrule.Sample) bool { return s.Time.Before(t.Oldest) }
	if !slices.ContainsFunc(b.Samples, old) {
		return b.Samples
	}
	return slices.DeleteFunc(slices.Clone(b.Samples), old)
}

// Gap says that samples may be missing.
func (t *Tracker) Gap(g ferrule.Gap) {
	if hit, met := t.eval.Gap(g); met {
		t.Hit(hit)
	}
}

// interrupted says that readings may have been lost since the last sample.
func (t *Tracker) interrupted(now time.Time) {
	if !t.eval.fresh {
		t.Gap(ferrule.Gap{From: t.eval.last.Time, To: now, Reason: ferrule.Dropped})
		t.silent = false
	}
}

// Due returns when Advance may meet the condition; zero if time alone does not.
func (t *Tracker) Due() time.Time {
	next := t.eval.Next()
	if !t.silent || next.IsZero() {
		return time.Time{}
	}
	return next.Add(t.lag)
}

// Advance says that time has passed, in which nothing was heard of the signal. What happened
// since the device went offline is not known.
func (t *Tracker) Advance(now time.Time) {
	if !t.silent || !t.conn.online || t.conn.lost != t.lost {
		return
	}
	if hit, met := t.eval.Advance(now.Add(-t.lag)); met {
		t.Hit(hit)
	}
}
