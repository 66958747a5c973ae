package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// bounds are the upper ends of what durations are counted in.
var bounds = [...]time.Duration{
	time.Microsecond, 2500 * time.Nanosecond, 5 * time.Microsecond,
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// times counts durations. It is safe for use by many goroutines, and costs half of what
// Prometheus' own histogram does.
type times struct {
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (t *times) add(took time.Duration) {
	took = max(took, 0)
	i := 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	t.counts[i].Add(1)
	t.sum.Add(int64(took))
}

// none tells that nothing was counted.
func (t *times) none() bool { count, _, _ := t.histogram(); return count == 0 }

// histogram is what was counted, as Prometheus has it: up to each bound, in seconds.
func (t *times) histogram() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(bounds))
	for i := range bounds {
		count += t.counts[i].Load()
		buckets[bounds[i].Seconds()] = count
	}
	count += t.counts[len(bounds)].Load()
	return count, time.Duration(t.sum.Load()).Seconds(), buckets
}

// roles are who calls. What is not known is the last.
var roles = [...]string{string(ferrule.Agent), string(ferrule.Person), string(ferrule.Gateway), other}

// other is what all is called that is not known.
const other = "other"

func roleOf(r ferrule.Role) int {
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

// byRole counts durations by who called: readings that the gateway takes by itself are
// many, and would hide what agents wait for.
type byRole [len(roles)]times

func (b *byRole) add(call *ferrule.Call, took time.Duration) {
	b[roleOf(call.Principal.Role)].add(took)
}

// inFlight is how many calls are on the road, by who called.
type inFlight [len(roles)]atomic.Int64

// pace lets one pass in a while, and costs nothing else.
type pace struct{ next atomic.Int64 }

// closely is how often a call is looked at closely, at most.
const closely = time.Millisecond

func (p *pace) passes(now time.Duration) bool {
	next := p.next.Load()
	return int64(now) >= next && p.next.CompareAndSwap(next, int64(now+closely))
}
