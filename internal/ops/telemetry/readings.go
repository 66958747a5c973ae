package telemetry

import (
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of what is told of readings. A value that is older would look as if it were
// measured now.
const (
	maxReadings = 10_000
	staleAfter  = 5 * time.Minute
)

// readings is what devices measured last.
type readings struct {
	mu      sync.Mutex
	last    map[signal]measured
	swept   time.Time // when those that are too old were last looked for
	dropped uint64
}

type signal struct{ device, name string }

type measured struct {
	value float64
	unit  string
	came  time.Time
}

// Measured takes in a reading, if readings are told. It does not block.
func (o *Telemetry) Measured(r ferrule.Reading) {
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

// room tells whether there is room for one more. It is called with mu held.
func (r *readings) room(now time.Time) bool {
	if len(r.last) >= maxReadings && now.Sub(r.swept) > staleAfter/10 {
		r.sweep(now)
	}
	return len(r.last) < maxReadings
}

// sweep forgets what is too old. It is called with mu held.
func (r *readings) sweep(now time.Time) {
	r.swept = now
	for key, m := range r.last {
		if now.Sub(m.came) > staleAfter {
			delete(r.last, key)
		}
	}
}

// each tells of all that are not too old, and returns how many there was no room for.
func (r *readings) each(tell func(s signal, m measured)) (dropped uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(time.Now())
	for key, m := range r.last {
		tell(key, m)
	}
	return r.dropped
}
