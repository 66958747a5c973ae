// Package histogram counts durations in buckets with fixed bounds.
//
//	Observe, by many goroutines ─▶ Histogram ─▶ Snapshot ─▶ Quantile, Prometheus buckets
//
// An observation is two atomic additions. That is half the cost of the Prometheus
// library's histogram, which matters where each call is timed several times; the
// measurement is in docs/adr/0013-metrics-and-traces.md.
package histogram

import (
	"sync/atomic"
	"time"
)

// Histogram counts durations. It is safe for concurrent use.
type Histogram struct {
	bounds []time.Duration
	counts []atomic.Uint64
	sum    atomic.Int64
}

// New returns a Histogram with the upper bounds of its buckets, in ascending order. It
// keeps the slice, which must not be changed.
func New(bounds []time.Duration) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts a duration. A negative one counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(h.bounds) && d > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// Snapshot returns the counts so far.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Bounds: h.bounds, Counts: make([]uint64, len(h.counts)), Sum: time.Duration(h.sum.Load())}
	for i := range h.counts {
		s.Counts[i] = h.counts[i].Load()
	}
	return s
}

// Snapshot is the content of a Histogram at one time.
type Snapshot struct {
	// Bounds are the upper bounds of the buckets.
	Bounds []time.Duration `json:"bounds"`
	// Counts has one count per bucket, and a last one for durations above all bounds.
	Counts []uint64      `json:"counts"`
	Sum    time.Duration `json:"sum"`
}

// Count returns the number of observations.
func (s Snapshot) Count() (count uint64) {
	for _, n := range s.Counts {
		count += n
	}
	return count
}

// Quantile returns the upper bound of the bucket that holds the quantile q, from 0 to 1.
// It returns 0 if there are no observations, and the last bound for durations above it.
func (s Snapshot) Quantile(q float64) time.Duration {
	count, seen := s.Count(), uint64(0)
	for i, n := range s.Counts {
		if seen += n; n > 0 && float64(seen) >= q*float64(count) {
			return s.Bounds[min(i, len(s.Bounds)-1)]
		}
	}
	return 0
}

// Buckets returns cumulative counts by upper bound in seconds, as Prometheus wants them.
func (s Snapshot) Buckets() map[float64]uint64 {
	buckets, count := make(map[float64]uint64, len(s.Bounds)), uint64(0)
	for i, bound := range s.Bounds {
		count += s.Counts[i]
		buckets[bound.Seconds()] = count
	}
	return buckets
}
