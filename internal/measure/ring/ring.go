// Package ring reads a device's ring buffer repeatedly and returns each sample once. Such
// a buffer has neither sequence numbers nor timestamps, and reading does not empty it:
// most of an answer was in the answer before.
//
//	read  1   2   3   4   5   6   7   8            the ring, the oldest first
//	read              4   5   6   7   8   9  10    overlaps the first read
//	new                                   9  10    recorded, each once
//
// Two facts must agree on how far the ring has moved: the values in the overlap, and the
// time that has passed. If several shifts fit, the samples that are certainly new are
// recorded, and a gap says how many may be missing. A flat line looks the same everywhere
// and has no gap: whatever is missing has the same value.
//
// The time of a sample follows from two facts about every read: the newest sample was
// taken before the answer arrived, and the next one after the request was sent. So its
// time lies in a span of one interval plus one round trip. The spans of many reads, each
// shifted by the samples between them, intersect in a short span, and they bound the rate
// of the device's clock. A sample is recorded with the remaining span. It is correct as
// long as the device samples evenly: at its interval, or steadily up to 10 % slower, as a
// busy loop does.
package ring

import (
	"math"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Assumptions about a device's clock.
const (
	faster   = 0.02 // how much shorter than declared the interval may be at first
	slower   = 0.10 // how much longer than declared
	maxDrift = 1e-4 // how much the learned rate may change
	// A sample may be late by this share of an interval plus minDelay.
	delayShare = 0.01
	minDelay   = 2 * time.Millisecond
	// jitter is the additional error from one read to the next.
	jitter = time.Millisecond
)

// Read is one read of a ring.
type Read struct {
	// Sent is when the request was sent, and Received when the answer had arrived.
	Sent, Received time.Time
	// Values is the content of the ring, the oldest first; NaN if it is not a number.
	Values []float64
	// Interval and Size are what the device declares.
	Interval time.Duration
	Size     int
}

// Ring is the state after a read. It is immutable: Next returns a new Ring. A nil Ring has
// not been read yet.
type Ring struct {
	interval time.Duration
	size     int
	// base is the origin of all times below.
	base time.Time
	// values is the content at the last read. If partial, the ring may have held older
	// values, which are not known.
	values  []float64
	partial bool
	// When the newest sample was taken: direct by the last read alone, newest by all reads.
	direct, newest span
	// recorded is the time with which the newest sample was recorded.
	recorded time.Duration
	// The time between two samples: nominal as declared, learned as observed.
	nominal, learned periods
	// anchors are earlier reads of an unbroken sequence of count samples.
	anchors []anchor
	count   int64
	// ambiguous is set if the last read fitted in several ways.
	ambiguous bool
}

// span is a range of time in which something happened.
type span struct{ lo, hi time.Duration }

func (s span) middle() time.Duration { return s.lo + (s.hi-s.lo)/2 }
func (s span) width() time.Duration  { return s.hi - s.lo }
func (s span) empty() bool           { return s.lo > s.hi }

func (s span) widen(by time.Duration) span { return span{s.lo - by, s.hi + by} }

func (s span) intersect(o span) span { return span{max(s.lo, o.lo), min(s.hi, o.hi)} }

// after returns when the n-th sample after one in the span is due.
func (s span) after(n int, r periods) span { return span{s.lo + r.shortest(n), s.hi + r.longest(n)} }

// before returns when the n-th sample before one in the span was due.
func (s span) before(n int, r periods) span { return span{s.lo - r.longest(n), s.hi - r.shortest(n)} }

// newest returns when a sample was due that was the newest one during the span: it had
// been taken, and the next had not.
func (s span) newest(p periods, delay time.Duration) span {
	return span{s.lo - p.longest(1) - delay, s.hi}
}

// periods are the shortest and longest time between two samples, in nanoseconds.
type periods struct{ min, max float64 }

func (r periods) shortest(n int) time.Duration { return time.Duration(float64(n) * r.min) }
func (r periods) longest(n int) time.Duration  { return time.Duration(float64(n) * r.max) }

func nominalPeriods(interval time.Duration) periods {
	return periods{float64(interval) * (1 - faster), float64(interval) * (1 + slower)}
}

// maxDelay returns how much later than due a sample may be taken.
func maxDelay(interval time.Duration) time.Duration {
	return minDelay + time.Duration(float64(interval)*delayShare)
}

// MaxAge returns how old the newest sample may be of a device that samples at interval.
func MaxAge(interval time.Duration) time.Duration {
	if interval <= 0 {
		return 0
	}
	return nominalPeriods(interval).longest(1) + maxDelay(interval)
}

// anchor is an earlier read: the number of samples so far, and when the newest was taken.
type anchor struct {
	count int64
	at    span
}

// The limits of the anchors.
const (
	maxAnchors = 64
	maxPast    = 30 * time.Minute
)

// Resume returns the state of a ring from its last recorded samples, the oldest first. Now
// is when the ring is read. It uses the wall clock once; later changes of the clock have
// no effect.
func Resume(tail []ferrule.Sample, now time.Time, interval time.Duration, size int) *Ring {
	tail = contiguous(tail, interval)
	if len(tail) == 0 || interval <= 0 {
		return nil
	}
	last := tail[len(tail)-1]
	within := time.Duration(last.Within)
	r := &Ring{
		interval: interval, size: size, base: now, partial: true, recorded: last.Time.Sub(now),
		nominal: nominalPeriods(interval), learned: nominalPeriods(interval),
	}
	r.newest = span{r.recorded, r.recorded}.widen(within)
	if r.newest.lo > 0 { // the clock was set back, by an unknown time
		r.recorded = -r.nominal.longest(size)
		r.newest = span{r.recorded, 0}
	}
	r.direct = r.newest
	for _, sample := range tail[max(0, len(tail)-size):] {
		r.values = append(r.values, sample.Value)
	}
	return r
}

// contiguous returns the end of a tail, after its last missing sample. The median step
// counts, because a device may sample more slowly than declared.
func contiguous(tail []ferrule.Sample, interval time.Duration) []ferrule.Sample {
	steps := make([]time.Duration, max(0, len(tail)-1))
	for i := range steps {
		steps[i] = tail[i+1].Time.Sub(tail[i].Time)
	}
	if len(steps) >= minOverlap {
		interval = max(interval, slices.Sorted(slices.Values(steps))[len(steps)/2])
	}
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i] > interval+interval/2 {
			return tail[i+1:]
		}
	}
	return tail
}

// Next returns the state after a read, and the new samples and gaps. If the read came too
// early to see a new sample, the state is unchanged and the batch is empty.
func (r *Ring) Next(read Read) (next *Ring, batch ferrule.SampleBatch) {
	if read.Interval <= 0 || read.Received.Before(read.Sent) {
		return r, batch
	}
	if r == nil {
		return begin(read)
	}
	if len(read.Values) == 0 || read.Interval != r.interval || read.Size != r.size {
		r = r.reset(read)
	}
	if len(read.Values) == 0 {
		return r, batch
	}
	now := span{read.Sent.Sub(r.base), read.Received.Sub(r.base)} // the content is of some time in it
	s := r.findShift(read.Values, now)
	if s.min == 0 {
		return r, batch
	}
	return r.advance(read, now, s)
}

// begin records the whole content of a ring at its first read.
func begin(read Read) (*Ring, ferrule.SampleBatch) {
	if len(read.Values) == 0 {
		return nil, ferrule.SampleBatch{}
	}
	nominal := nominalPeriods(read.Interval)
	now := span{-read.Received.Sub(read.Sent), 0}
	r := &Ring{
		interval: read.Interval, size: read.Size, base: read.Received, values: read.Values,
		direct: now.newest(nominal, maxDelay(read.Interval)), nominal: nominal, learned: nominal,
	}
	r.newest = r.direct
	r.anchors = []anchor{{0, r.newest}}
	w := writer{received: read.Received, now: now.hi, last: math.MinInt64 / 2}
	r.write(&w, read.Values)
	r.recorded = w.last
	return r, w.end()
}

// reset forgets everything but the time of the last recorded sample: the device restarted
// or samples differently now.
func (r *Ring) reset(read Read) *Ring {
	next := *r
	next.interval, next.size = read.Interval, read.Size
	next.values, next.partial, next.anchors, next.ambiguous = nil, false, nil, false
	if read.Interval != r.interval {
		next.nominal, next.learned = nominalPeriods(read.Interval), nominalPeriods(read.Interval)
	}
	return &next
}

// advance moves the ring by a shift and records the new samples.
func (r *Ring) advance(read Read, now span, s shift) (*Ring, ferrule.SampleBatch) {
	next := *r
	next.values, next.partial, next.ambiguous = read.Values, false, s.ambiguous
	if s.periods != (periods{}) {
		next.nominal, next.learned = s.periods, s.periods
	}
	next.direct = now.newest(next.nominal, maxDelay(r.interval))
	w := writer{received: read.Received, now: now.hi, last: r.recorded}
	fresh := next.values[len(next.values)-min(s.min, len(next.values)):]
	if s.exact() {
		even := next.extend(r, now, s.min)
		next.writeBetween(&w, r, fresh, even && s.periods == periods{})
	} else {
		next.newest = next.direct
		if s.reason == ferrule.Unclear || s.flat {
			next.newest = next.hull(r, s)
		}
		next.count, next.anchors = 0, []anchor{{0, next.newest}}
		if !s.flat {
			w.missing(s.reason, max(1, s.max-len(fresh)))
		}
		next.write(&w, fresh)
	}
	next.recorded = w.last
	return &next, w.end()
}

// extend continues an unbroken sequence: it narrows down the time of the newest sample and
// the period. It reports whether the samples came evenly.
func (r *Ring) extend(before *Ring, now span, moved int) (even bool) {
	r.count += int64(moved)
	r.newest = before.newest.after(moved, r.learned).widen(jitter).intersect(now.newest(r.learned, maxDelay(r.interval)))
	if even = !r.newest.empty(); !even {
		r.newest, r.learned, r.anchors = r.direct, r.nominal, nil
	}
	if declared := nominalPeriods(r.interval); r.nominal != declared && even && !before.direct.after(moved, declared).intersect(r.direct).empty() {
		r.nominal, r.learned, r.anchors = declared, declared, nil // back to the declared interval
	}
	r.learn()
	return even
}

// learn bounds the period by the earlier reads.
func (r *Ring) learn() {
	learned := r.nominal
	kept := make([]anchor, 0, maxAnchors)
	for _, a := range r.anchors {
		if r.newest.hi-a.at.lo > maxPast || len(r.anchors) >= maxAnchors && a == r.anchors[0] {
			continue
		}
		kept = append(kept, a)
		n := float64(r.count - a.count)
		learned.min = max(learned.min, float64(r.newest.lo-a.at.hi-jitter)/n)
		learned.max = min(learned.max, float64(r.newest.hi-a.at.lo+jitter)/n)
	}
	if learned.min > learned.max {
		kept, learned = nil, r.nominal
	}
	if len(kept) == 0 {
		r.learned, r.anchors = r.nominal, []anchor{{r.count, r.newest}}
		return
	}
	drift := float64(r.interval) * maxDrift
	r.learned = periods{max(learned.min-drift, r.nominal.min), min(learned.max+drift, r.nominal.max)}
	r.anchors = append(kept, anchor{r.count, r.newest})
}

// hull returns when the newest sample was taken, for all shifts that are possible.
func (r *Ring) hull(before *Ring, s shift) span {
	all := span{math.MaxInt64, math.MinInt64}
	for n := s.min; n <= min(s.max, s.min+maxHull); n++ {
		if at := before.newest.after(n, r.learned).widen(jitter).intersect(r.direct); !at.empty() {
			all = span{min(all.lo, at.lo), max(all.hi, at.hi)}
		}
	}
	if all.empty() || s.max > s.min+maxHull {
		return r.direct
	}
	return all
}

// maxHull is how many shifts hull considers.
const maxHull = 64

// estimate returns the most likely time of a sample, counted back from the newest.
func (r *Ring) estimate(back int) time.Duration {
	every := float64(r.interval)
	if r.learned != r.nominal {
		every = (r.learned.min + r.learned.max) / 2
	}
	return r.newest.middle() - time.Duration(float64(back)*every)
}

// Due returns the best time to read the ring, not before from. For a flat line that is
// halfway between two samples, where the number of new samples is certain.
func (r *Ring) Due(from time.Time) time.Time {
	if r == nil || !r.ambiguous || r.newest.width() > r.interval/2 {
		return from
	}
	every := (r.learned.min + r.learned.max) / 2
	passed := float64(from.Sub(r.base)-r.newest.middle()) / every
	return r.base.Add(r.newest.middle() + time.Duration((math.Ceil(passed-0.5)+0.5)*every))
}
