package ring

import (
	"math"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// write records samples up to the newest, with times derived from the newest alone.
func (r *Ring) write(w *writer, fresh []float64) {
	for i, v := range fresh {
		back := len(fresh) - 1 - i
		w.add(r.estimate(back), r.taken(r.newest.before(back, r.learned)), v)
	}
}

// writeBetween records samples with times derived from both reads that they lie between.
func (r *Ring) writeBetween(w *writer, before *Ring, fresh []float64, even bool) {
	step := float64(r.newest.middle()-before.recorded) / float64(len(fresh))
	for i, v := range fresh {
		back := len(fresh) - 1 - i
		due := before.newest.after(i+1, r.learned).widen(jitter).intersect(r.newest.before(back, r.learned).widen(jitter))
		if !even || due.empty() { // the device stood still somewhere in between
			due = span{before.direct.lo + r.nominal.shortest(i+1), r.direct.hi - r.nominal.shortest(back)}
		}
		w.add(before.recorded+time.Duration(float64(i+1)*step), r.taken(due), v)
	}
}

// taken returns when a sample was taken that was due in the span.
func (r *Ring) taken(due span) span { return span{due.lo, due.hi + maxDelay(r.interval)} }

// writer builds a batch.
type writer struct {
	received time.Time     // the wall clock when the answer arrived
	now      time.Duration // the same on the ring's time axis
	last     time.Duration // when the last sample was taken
	batch    ferrule.SampleBatch
	inGap    bool // the last gap is still open
}

// at converts a time to the wall clock.
func (w *writer) at(t time.Duration) time.Time { return w.received.Add(t - w.now) }

// missing notes that up to count samples are missing after the last one.
func (w *writer) missing(reason ferrule.GapReason, count int) {
	if n := len(w.batch.Gaps); w.inGap || n == ferrule.MaxGaps { // beyond the limit, the last gap grows
		w.batch.Gaps[n-1].MaxMissing += count
		w.inGap = true
		return
	}
	w.batch.Gaps = append(w.batch.Gaps, ferrule.Gap{From: w.at(w.last), Reason: reason, MaxMissing: count})
	w.inGap = true
}

// add records a sample with its most likely time and the span in which it was taken.
func (w *writer) add(likely time.Duration, within span, v float64) {
	likely = max(likely, w.last+time.Microsecond)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		if w.last < math.MinInt64/4 { // it is the first
			w.last = likely - time.Microsecond
		}
		w.missing(ferrule.Silent, 1)
		w.last = likely
		return
	}
	w.last = likely
	w.closeGap()
	uncertainty := max(likely-within.lo, within.hi-likely, time.Microsecond)
	w.batch.Samples = append(w.batch.Samples, ferrule.Sample{Time: w.at(likely), Value: v, Within: ferrule.Duration(uncertainty)})
}

func (w *writer) closeGap() {
	if w.inGap {
		w.batch.Gaps[len(w.batch.Gaps)-1].To = w.at(w.last)
		w.inGap = false
	}
}

func (w *writer) end() ferrule.SampleBatch {
	w.closeGap()
	return w.batch
}
