package poller

import (
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/histogram"
)

// Stats are counters since the start, and gauges of the present.
type Stats struct {
	// Devices and Polls are how many are active now. BackingOff is how many of the polls
	// run less often than planned, because they fail.
	Devices    int `json:"devices"`
	Polls      int `json:"polls"`
	BackingOff int `json:"backing_off"`
	// Waiting is how many polls are due and wait for their device or for a worker.
	Waiting int `json:"waiting"`
	// Reads counts polls, and Failures those without a measurement.
	Reads    uint64 `json:"reads"`
	Failures uint64 `json:"failures"`
	// Samples counts the published samples, and Dropped the readings that Publish refused.
	Samples uint64 `json:"samples"`
	Dropped uint64 `json:"dropped"`
	// Late is how much later than planned polls ran.
	Late histogram.Snapshot `json:"late"`
}

// lateBounds are the buckets of Stats.Late.
var lateBounds = []time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
}

type counts struct {
	reads, failures, samples, dropped atomic.Uint64
	late                              *histogram.Histogram
}

// Stats returns the current figures. It is safe for concurrent use.
func (s *Poller) Stats() Stats {
	out := Stats{
		Reads: s.counts.reads.Load(), Failures: s.counts.failures.Load(),
		Samples: s.counts.samples.Load(), Dropped: s.counts.dropped.Load(),
		Late: s.counts.late.Snapshot(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		if !d.active {
			continue
		}
		out.Devices++
		out.Waiting += len(d.waiting)
		for _, p := range d.polls {
			if p.disabled {
				continue
			}
			out.Polls++
			if p.failures > 0 {
				out.BackingOff++
			}
		}
	}
	return out
}
