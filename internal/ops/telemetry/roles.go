package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/histogram"
)

// bounds are the buckets of all durations of calls.
var bounds = []time.Duration{
	time.Microsecond, 2500 * time.Nanosecond, 5 * time.Microsecond,
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

func newDurations() *histogram.Histogram { return histogram.New(bounds) }

// roles are the values of the label role. Unknown roles count as the last one.
var roles = [...]string{string(ferrule.Agent), string(ferrule.Person), string(ferrule.Gateway), other}

// other is the label value for anything unknown.
const other = "other"

func roleIndex(r ferrule.Role) int {
	switch r {
	case ferrule.Agent:
		return 0
	case ferrule.Person:
		return 1
	case ferrule.Gateway:
		return 2
	}
	return 3
}

// byRole has one histogram per role: the gateway's own polls are many, and would hide
// how long agents wait.
type byRole [len(roles)]*histogram.Histogram

func newByRole() (b byRole) {
	for i := range b {
		b[i] = newDurations()
	}
	return b
}

func (b *byRole) add(call *ferrule.Call, took time.Duration) {
	b[roleIndex(call.Principal.Role)].Observe(took)
}

// inFlight counts the calls in the pipeline, by role.
type inFlight [len(roles)]atomic.Int64

// sampler selects one call per interval.
type sampler struct{ next atomic.Int64 }

// sampleInterval is the shortest time between two calls whose stages are timed.
const sampleInterval = time.Millisecond

func (s *sampler) take(now time.Duration) bool {
	next := s.next.Load()
	return int64(now) >= next && s.next.CompareAndSwap(next, int64(now+sampleInterval))
}
