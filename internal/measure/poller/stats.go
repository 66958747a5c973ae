package poller

import (
	"sync/atomic"
	"time"
)

// Stats is what is counted, since the beginning but for what is now.
type Stats struct {
	// Devices and Probes are how many are asked now, and BackingOff how many of the
	// probes are asked less often than they should be, because they fail.
	Devices    int `json:"devices"`
	Probes     int `json:"polls"`
	BackingOff int `json:"backing_off"`
	// Waiting are the probes that are due and wait for their device, or for room.
	Waiting int `json:"waiting"`
	// Reads counts how often a device was asked, and Failures how often that brought
	// nothing.
	Reads    uint64 `json:"reads"`
	Failures uint64 `json:"failures"`
	// Samples counts what was recorded, and Dropped the readings for which there was no
	// room.
	Samples uint64 `json:"samples"`
	Dropped uint64 `json:"dropped"`
	// Late tells how much later than they were due devices were asked.
	Late Lateness `json:"late"`
}

// Lateness is how late things were, as a histogram.
type Lateness struct {
	// Counts has how many were no later than each of LateBounds, and later than the
	// one before it; the last, how many were later than all.
	Counts [len(LateBounds) + 1]uint64 `json:"counts"`
	Sum    time.Duration               `json:"sum"`
}

// LateBounds are the bounds of a histogram of Lateness.
var LateBounds = [...]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
}

// Quantile is what a share of all was no later than, as far as the bounds tell: the bound
// above it. It is 0 of none, and the last bound of those that were later than all.
func (l Lateness) Quantile(share float64) time.Duration {
	var all, seen uint64
	for _, n := range l.Counts {
		all += n
	}
	for i, n := range l.Counts {
		if seen += n; n > 0 && float64(seen) >= share*float64(all) {
			return LateBounds[min(i, len(LateBounds)-1)]
		}
	}
	return 0
}

// counts is what is counted while devices are asked.
type counts struct {
	reads, failures, samples, dropped atomic.Uint64
	late                              [len(LateBounds) + 1]atomic.Uint64
	lateSum                           atomic.Int64
}

func (c *counts) lateBy(d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(LateBounds) && d > LateBounds[i] {
		i++
	}
	c.late[i].Add(1)
	c.lateSum.Add(int64(d))
}

// Stats may be asked for at any time.
func (s *Poller) Stats() Stats {
	out := Stats{
		Reads: s.counts.reads.Load(), Failures: s.counts.failures.Load(),
		Samples: s.counts.samples.Load(), Dropped: s.counts.dropped.Load(),
	}
	for i := range s.counts.late {
		out.Late.Counts[i] = s.counts.late[i].Load()
	}
	out.Late.Sum = time.Duration(s.counts.lateSum.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		if !d.awake {
			continue
		}
		out.Devices++
		out.Waiting += len(d.waiting)
		for _, p := range d.probes {
			if p.off {
				continue
			}
			out.Probes++
			if p.fails > 0 {
				out.BackingOff++
			}
		}
	}
	return out
}
