package telemetry

import (
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of the metric reading. Older values are left out, because Prometheus would
// record them as measured now.
const (
	maxReadings = 10_000
	staleAfter  = 5 * time.Minute
)

// readings keeps the latest value of each signal.
type readings struct {
	mu      sync.Mutex
	last    map[signal]measured
	swept   time.Time // when stale values were last removed
	dropped uint64
}

type signal struct{ device, name string }

type measured struct {
	value    float64
	unit     string
	received time.Time
}

// Record keeps the latest values of a reading, if they are exposed. It does not block.
func (o *Telemetry) Record(r ferrule.Reading) {
	if o.parts.Config.Readings {
		o.readings.take(r, time.Now())
	}
}

func (r *readings) take(reading ferrule.Reading, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[signal]measured)
	}
	for i := range reading.Batches {
		s := &reading.Batches[i]
		if len(s.Samples) == 0 {
			continue
		}
		key := signal{reading.Device, s.Signal}
		if _, known := r.last[key]; !known && !r.room(now) {
			r.dropped++
			continue
		}
		r.last[key] = measured{s.Samples[len(s.Samples)-1].Value, ferrule.Clean(s.Unit, ferrule.MaxUnit), now}
	}
}

// room reports whether another signal fits. It is called with mu held.
func (r *readings) room(now time.Time) bool {
	if len(r.last) >= maxReadings && now.Sub(r.swept) > staleAfter/10 {
		r.sweep(now)
	}
	return len(r.last) < maxReadings
}

// sweep removes stale values. It is called with mu held.
func (r *readings) sweep(now time.Time) {
	r.swept = now
	for key, m := range r.last {
		if now.Sub(m.received) > staleAfter {
			delete(r.last, key)
		}
	}
}

// each calls fn with every value that is not stale, and returns how many did not fit.
func (r *readings) each(fn func(s signal, m measured)) (dropped uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(time.Now())
	for key, m := range r.last {
		fn(key, m)
	}
	return r.dropped
}
