// Package ring makes one line of samples out of a ring buffer that is read again and
// again. Such a buffer carries neither numbers nor times, and reading it takes nothing
// out of it: most of what an answer holds was in the answer before.
//
//	read  1   2   3   4   5   6   7   8            the ring, the oldest first
//	read              4   5   6   7   8   9  10    overlaps it
//	new                                   9  10    is recorded, each once
//
// How far the ring has moved is told by two things that must agree: what stands in the
// overlap, and how much time has passed. Where several answers fit (a flat line looks
// the same wherever it is cut), as many samples are recorded as are new for certain,
// and a Hole tells that there may be more.
//
// When a sample was taken follows from two facts that hold at every read: the newest
// sample in the ring was taken before the answer came, and the next one after the
// question was sent. So its time lies in a span as long as one interval and one round
// trip. Spans of many reads, each shifted by the samples between them, have a small
// part in common; and they bound how fast the device's clock runs. A sample is told
// with the span that is left, which holds it as long as the device samples evenly: at
// its interval, or up to a tenth slower, as a busy loop does, and steadily.
package ring

import (
	"math"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// What is taken for granted about a device's clock.
const (
	faster = 0.02 // how much shorter the interval may be than it says, at first
	slower = 0.10 // and how much longer
	wander = 1e-4 // how much the rate may change after it was learned
	// A sample may be taken late, by as much of an interval and a moment more.
	lateness = 0.01
	moment   = 2 * time.Millisecond
	// stray is how much more the line may shift from one read to the next.
	stray = time.Millisecond
)

// Read is one answer of a device about a ring.
type Read struct {
	// Sent is when the device was asked, and Came is when it had answered.
	Sent, Came time.Time
	// Values are what the ring holds, the oldest first; NaN where there is no number.
	Values []float64
	// Interval and Size are what the device says of the ring.
	Interval time.Duration
	Size     int
}

// Ring is how far a ring buffer has been read. It never changes: what follows from
// another read is another Ring. A nil Ring was never read.
type Ring struct {
	interval time.Duration
	size     int
	// base is what times are counted from.
	base time.Time
	// values are what it held when it was last read. It may hold older ones if they are
	// not all known.
	values []float64
	partly bool
	// direct is when the newest was taken, as the last read tells by itself, and newest
	// as all of them do.
	direct, newest span
	// told is the time with which it was recorded.
	told time.Duration
	// usual is how fast the device samples, as it says; learned, as was seen.
	usual, learned rates
	// anchors are earlier reads of one unbroken line, and count is how many samples it
	// has.
	anchors []anchor
	count   int64
	// alike tells that what was read last fits in several ways.
	alike bool
}

// span is from when to when something may have been.
type span struct{ lo, hi time.Duration }

func (s span) middle() time.Duration { return s.lo + (s.hi-s.lo)/2 }
func (s span) width() time.Duration  { return s.hi - s.lo }
func (s span) empty() bool           { return s.lo > s.hi }

// wider is the span, and as much before and after it.
func (s span) wider(by time.Duration) span { return span{s.lo - by, s.hi + by} }

// and is what two spans have in common.
func (s span) and(o span) span { return span{max(s.lo, o.lo), min(s.hi, o.hi)} }

// after is when the n-th sample after one in the span is due.
func (s span) after(n int, r rates) span { return span{s.lo + r.least(n), s.hi + r.most(n)} }

// before is when the n-th sample before one in the span was due.
func (s span) before(n int, r rates) span { return span{s.lo - r.most(n), s.hi - r.least(n)} }

// newest is when a sample was due that was the newest during a span: it had been taken,
// and the next had not.
func (s span) newest(r rates, late time.Duration) span { return span{s.lo - r.most(1) - late, s.hi} }

// rates is how long it may be from one sample to the next, in nanoseconds.
type rates struct{ min, max float64 }

func (r rates) least(n int) time.Duration { return time.Duration(float64(n) * r.min) }
func (r rates) most(n int) time.Duration  { return time.Duration(float64(n) * r.max) }

func usual(interval time.Duration) rates {
	return rates{float64(interval) * (1 - faster), float64(interval) * (1 + slower)}
}

// late is how much later than it is due a sample may be taken.
func late(interval time.Duration) time.Duration {
	return moment + time.Duration(float64(interval)*lateness)
}

// Oldest is how long ago the newest sample of a device may have been taken that takes one in
// an interval.
func Oldest(interval time.Duration) time.Duration {
	if interval <= 0 {
		return 0
	}
	return usual(interval).most(1) + late(interval)
}

// anchor is a read: how many samples there were, and when the newest was taken.
type anchor struct {
	count int64
	at    span
}

// The past that the rate is learned from.
const (
	maxAnchors = 64
	maxPast    = 30 * time.Minute
)

// Resume is the ring that the last recorded samples came from, the oldest first, for who
// reads it now. From then on the clock on the wall may be set: it plays no part.
func Resume(tail []ferrule.Sample, now time.Time, interval time.Duration, size int) *Ring {
	tail = unbroken(tail, interval)
	if len(tail) == 0 || interval <= 0 {
		return nil
	}
	last := tail[len(tail)-1]
	within := time.Duration(last.Within)
	r := &Ring{
		interval: interval, size: size, base: now, partly: true, told: last.Time.Sub(now),
		usual: usual(interval), learned: usual(interval),
	}
	r.newest = span{r.told, r.told}.wider(within)
	if r.newest.lo > 0 { // it was set back, and nobody knows how long ago that was
		r.told = -r.usual.most(size)
		r.newest = span{r.told, 0}
	}
	r.direct = r.newest
	for _, sample := range tail[max(0, len(tail)-size):] {
		r.values = append(r.values, sample.Value)
	}
	return r
}

// unbroken is the end of a tail, after the last sample that is missing. A device may sample
// more slowly than it says: then most steps are longer.
func unbroken(tail []ferrule.Sample, interval time.Duration) []ferrule.Sample {
	steps := make([]time.Duration, max(0, len(tail)-1))
	for i := range steps {
		steps[i] = tail[i+1].Time.Sub(tail[i].Time)
	}
	if len(steps) >= plenty {
		interval = max(interval, slices.Sorted(slices.Values(steps))[len(steps)/2])
	}
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i] > interval+interval/2 {
			return tail[i+1:]
		}
	}
	return tail
}

// Next is what follows from a read: the Ring, and what is new in it. The Ring may be
// the same, and nothing new, if the read came too early to tell.
func (r *Ring) Next(read Read) (next *Ring, series ferrule.SampleBatch) {
	if read.Interval <= 0 || read.Came.Before(read.Sent) {
		return r, series
	}
	if r == nil {
		return begin(read)
	}
	if len(read.Values) == 0 || read.Interval != r.interval || read.Size != r.size {
		r = r.cut(read)
	}
	if len(read.Values) == 0 {
		return r, series
	}
	now := span{read.Sent.Sub(r.base), read.Came.Sub(r.base)} // what it held, it held then
	s := r.shift(read.Values, now)
	if s.least == 0 {
		return r, series
	}
	return r.move(read, now, s)
}

// begin records all that a ring holds when it is first read.
func begin(read Read) (*Ring, ferrule.SampleBatch) {
	if len(read.Values) == 0 {
		return nil, ferrule.SampleBatch{}
	}
	fast := usual(read.Interval)
	now := span{-read.Came.Sub(read.Sent), 0}
	r := &Ring{
		interval: read.Interval, size: read.Size, base: read.Came, values: read.Values,
		direct: now.newest(fast, late(read.Interval)), usual: fast, learned: fast,
	}
	r.newest = r.direct
	r.anchors = []anchor{{0, r.newest}}
	w := writer{wall: read.Came, now: now.hi, last: math.MinInt64 / 2}
	r.write(&w, read.Values)
	r.told = w.last
	return r, w.end()
}

// cut is a ring of which nothing is known but when its last sample was recorded: the
// device has begun anew, or samples otherwise.
func (r *Ring) cut(read Read) *Ring {
	next := *r
	next.interval, next.size = read.Interval, read.Size
	next.values, next.partly, next.anchors, next.alike = nil, false, nil, false
	if read.Interval != r.interval {
		next.usual, next.learned = usual(read.Interval), usual(read.Interval)
	}
	return &next
}

// move is the ring after it has moved on.
func (r *Ring) move(read Read, now span, s shift) (*Ring, ferrule.SampleBatch) {
	next := *r
	next.values, next.partly, next.alike = read.Values, false, s.alike
	if s.loose != (rates{}) {
		next.usual, next.learned = s.loose, s.loose
	}
	next.direct = now.newest(next.usual, late(r.interval))
	w := writer{wall: read.Came, now: now.hi, last: r.told}
	fresh := next.values[len(next.values)-min(s.least, len(next.values)):]
	if s.exact() {
		even := next.follow(r, now, s.least)
		next.writeBetween(&w, r, fresh, even && s.loose == rates{})
	} else {
		next.newest = next.direct
		if s.why == ferrule.Unclear {
			next.newest = next.hull(r, s)
		}
		next.count, next.anchors = 0, []anchor{{0, next.newest}}
		w.missing(s.why, max(1, s.most-len(fresh)))
		next.write(&w, fresh)
	}
	next.told = w.last
	return &next, w.end()
}

// follow learns from an unbroken line: when the newest sample was due, and how fast
// they come. It is false if they have not come evenly.
func (r *Ring) follow(before *Ring, now span, moved int) (even bool) {
	r.count += int64(moved)
	r.newest = before.newest.after(moved, r.learned).wider(stray).and(now.newest(r.learned, late(r.interval)))
	if even = !r.newest.empty(); !even {
		r.newest, r.learned, r.anchors = r.direct, r.usual, nil
	}
	if said := usual(r.interval); r.usual != said && even && !before.direct.after(moved, said).and(r.direct).empty() {
		r.usual, r.learned, r.anchors = said, said, nil // it samples as it says, again
	}
	r.learn()
	return even
}

// learn bounds how fast samples come, by what is known of earlier reads.
func (r *Ring) learn() {
	learned := r.usual
	kept := make([]anchor, 0, maxAnchors)
	for _, a := range r.anchors {
		if r.newest.hi-a.at.lo > maxPast || len(r.anchors) >= maxAnchors && a == r.anchors[0] {
			continue
		}
		kept = append(kept, a)
		n := float64(r.count - a.count)
		learned.min = max(learned.min, float64(r.newest.lo-a.at.hi-stray)/n)
		learned.max = min(learned.max, float64(r.newest.hi-a.at.lo+stray)/n)
	}
	if learned.min > learned.max {
		kept, learned = nil, r.usual
	}
	if len(kept) == 0 {
		r.learned, r.anchors = r.usual, []anchor{{r.count, r.newest}}
		return
	}
	drift := float64(r.interval) * wander
	r.learned = rates{max(learned.min-drift, r.usual.min), min(learned.max+drift, r.usual.max)}
	r.anchors = append(kept, anchor{r.count, r.newest})
}

// hull is when the newest sample was taken, whichever of several shifts it was.
func (r *Ring) hull(before *Ring, s shift) span {
	all := span{math.MaxInt64, math.MinInt64}
	for n := s.least; n <= min(s.most, s.least+maxHull); n++ {
		if at := before.newest.after(n, r.learned).wider(stray).and(r.direct); !at.empty() {
			all = span{min(all.lo, at.lo), max(all.hi, at.hi)}
		}
	}
	if all.empty() || s.most > s.least+maxHull {
		return r.direct
	}
	return all
}

// maxHull is how many shifts are looked at; of more, nothing is learned.
const maxHull = 64

// estimate is when a sample was most likely taken, so many before the newest.
func (r *Ring) estimate(back int) time.Duration {
	every := float64(r.interval)
	if r.learned != r.usual {
		every = (r.learned.min + r.learned.max) / 2
	}
	return r.newest.middle() - time.Duration(float64(back)*every)
}

// Due is a moment not before another at which the device had best be asked: for a line
// that looks everywhere the same, halfway between two samples, where it is clear how
// many there are.
func (r *Ring) Due(from time.Time) time.Time {
	if r == nil || !r.alike || r.newest.width() > r.interval/2 {
		return from
	}
	every := (r.learned.min + r.learned.max) / 2
	passed := float64(from.Sub(r.base)-r.newest.middle()) / every
	return r.base.Add(r.newest.middle() + time.Duration((math.Ceil(passed-0.5)+0.5)*every))
}
