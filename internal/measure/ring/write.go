package ring

import (
	"math"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// write records samples that end with the newest, by it alone.
func (r *Ring) write(w *writer, fresh []float64) {
	for i, v := range fresh {
		back := len(fresh) - 1 - i
		w.add(r.estimate(back), r.taken(r.newest.before(back, r.learned)), v)
	}
}

// writeBetween records samples that lie between those of two reads.
func (r *Ring) writeBetween(w *writer, before *Ring, fresh []float64, even bool) {
	step := float64(r.newest.middle()-before.told) / float64(len(fresh))
	for i, v := range fresh {
		back := len(fresh) - 1 - i
		due := before.newest.after(i+1, r.learned).wider(stray).and(r.newest.before(back, r.learned).wider(stray))
		if !even || due.empty() { // somewhere in between, it stood still
			due = span{before.direct.lo + r.usual.least(i+1), r.direct.hi - r.usual.least(back)}
		}
		w.add(before.told+time.Duration(float64(i+1)*step), r.taken(due), v)
	}
}

// taken is when a sample was taken that was due within a span.
func (r *Ring) taken(due span) span { return span{due.lo, due.hi + late(r.interval)} }

// writer makes a Series.
type writer struct {
	wall   time.Time     // when the answer came, by the clock
	now    time.Duration // and as the ring counts
	last   time.Duration // when the last sample was taken
	series ferrule.SampleBatch
	hole   bool // the last hole goes on
}

// at is a time by the clock.
func (w *writer) at(t time.Duration) time.Time { return w.wall.Add(t - w.now) }

// missing notes that samples may be missing after the last.
func (w *writer) missing(why ferrule.GapReason, most int) {
	if n := len(w.series.Gaps); w.hole || n == ferrule.MaxGaps { // of too many, the last is a long one
		w.series.Gaps[n-1].MaxMissing += most
		w.hole = true
		return
	}
	w.series.Gaps = append(w.series.Gaps, ferrule.Gap{From: w.at(w.last), Reason: why, MaxMissing: most})
	w.hole = true
}

// add records a sample, most likely taken at a time, and surely within a span.
func (w *writer) add(likely time.Duration, within span, v float64) {
	likely = max(likely, w.last+time.Microsecond)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		if w.last < math.MinInt64/4 { // nothing was before it
			w.last = likely - time.Microsecond
		}
		w.missing(ferrule.Silent, 1)
		w.last = likely
		return
	}
	w.last = likely
	w.closeHole()
	sure := max(likely-within.lo, within.hi-likely, time.Microsecond)
	w.series.Samples = append(w.series.Samples, ferrule.Sample{Time: w.at(likely), Value: v, Within: ferrule.Duration(sure)})
}

func (w *writer) closeHole() {
	if w.hole {
		w.series.Gaps[len(w.series.Gaps)-1].To = w.at(w.last)
		w.hole = false
	}
}

func (w *writer) end() ferrule.SampleBatch {
	w.closeHole()
	return w.series
}
