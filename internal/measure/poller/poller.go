// Package poller reads what devices measure, at regular intervals, and publishes it.
//
//	protocol's polls ─┐
//	polled tools ─────┼─▶ plan ─▶ wheel ─due─▶ device ─▶ ready ─▶ up to in_flight workers
//	overlays' polls ──┘            ▲                                │ pipeline, as any call
//	                               └────────── next time ───────────┤
//	                                                                ▼
//	         history ─Tail─▶ signals: new samples, gaps, state changes ─▶ Publish
//
// One goroutine turns a timer wheel. Workers exist only while polls are due, so an idle
// poller is one goroutine, whatever the number of devices. A device runs one poll at a
// time.
//
// A failing poll backs off: each failure doubles its pause. A slow device is polled less
// often: an answer may take at most a quarter of the time between two polls. A reading
// that Publish did not accept changes nothing: the next one continues from the state
// before it.
package poller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/histogram"
)

// Config configures polling.
type Config struct {
	// Enabled reports whether devices are polled at all.
	Enabled bool
	// Fastest is the shortest interval of a poll.
	Fastest time.Duration
	// InFlight is how many devices may be polled at the same time.
	InFlight int
}

// DefaultConfig returns the defaults: everything that devices and overlays declare is
// polled.
func DefaultConfig() Config {
	return Config{Enabled: true, Fastest: 100 * time.Millisecond, InFlight: 64}
}

// The limits of the config.
const (
	minFastest  = tick
	maxFastest  = time.Hour
	maxInFlight = 4096
)

// Check returns an error if a value is out of range.
func (c Config) Check() error {
	if c.Fastest < minFastest || c.Fastest > maxFastest {
		return fmt.Errorf("fastest: must be between %v and %v, got %v", minFastest, maxFastest, c.Fastest)
	}
	if c.InFlight < 1 || c.InFlight > maxInFlight {
		return fmt.Errorf("in_flight: must be between 1 and %d, got %d", maxInFlight, c.InFlight)
	}
	return nil
}

// History returns what was recorded before. Tail returns the last n samples of a signal,
// the oldest first; it may wait until everything published before is written. Recorded
// returns the last sample of each signal; it may wait for what an earlier process published.
type History interface {
	Tail(ctx context.Context, device, signal string, n int) ([]ferrule.Sample, error)
	Recorded(ctx context.Context, device string) ([]ferrule.Latest, error)
}

// Parts are the dependencies of a Poller.
type Parts struct {
	Config Config
	// Handle is the pipeline.
	Handle ferrule.Handler
	// Polls return what a device measures, by the name of its protocol.
	Polls map[string]func(effective *ferrule.Manifest) []ferrule.Poll
	// Publish takes a reading and reports whether there was room for it. It must not
	// block.
	Publish func(ferrule.Reading) bool
	// Seen takes states that were read, have not changed and are not published. It must not
	// block. It may be nil.
	Seen func(ferrule.Reading)
	// History is nil if nothing is recorded.
	History History
	Node    string
	Log     *slog.Logger
}

// Poller polls the devices of its node. It is a ferrule.DeviceWatcher.
type Poller struct {
	parts  Parts
	counts counts
	// wake interrupts Run when something is due earlier than wakeAt.
	wake chan struct{}

	mu      sync.Mutex
	wheel   *wheel
	wakeAt  time.Time // when Run wakes up next; zero if the wheel is empty
	devices map[string]*device
	plans   map[*ferrule.Manifest]*plan
	ready   []*device // have a due poll and run none
	readers int       // worker goroutines
	warned  time.Time // when a dropped reading was last logged
}

// New returns a Poller. It does nothing until Run.
func New(p Parts) *Poller {
	return &Poller{
		parts: p, counts: counts{late: histogram.New(lateBounds)}, wake: make(chan struct{}, 1), wheel: newWheel(time.Now()),
		devices: make(map[string]*device), plans: make(map[*ferrule.Manifest]*plan),
	}
}

// Run polls devices until ctx ends.
func (s *Poller) Run(ctx context.Context) error {
	defer s.recordAllSeen() // after the workers have ended
	var readers sync.WaitGroup
	defer readers.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.wake:
		}
		next, more, any := s.turn(time.Now())
		for range more {
			readers.Go(func() { s.work(ctx) })
		}
		if any {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
	}
}

// Polls reports whether a device is polled, and a poll brings a signal: false if no poll of it
// does, or none did yet.
func (s *Poller) Polls(id, signal string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[id]
	if d == nil || !d.active {
		return false
	}
	p := d.signals[signal]
	return p != nil && !p.disabled && !p.removed
}

// recordAllSeen publishes the states that were seen after they were recorded.
func (s *Poller) recordAllSeen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		for _, p := range d.polls {
			s.recordSeen(p)
		}
	}
}

// turn queues the polls that are due. It returns when to call it again, how many workers
// to start, and whether the wheel holds anything.
func (s *Poller) turn(now time.Time) (next time.Time, more int, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.wheel.turn(now) {
		s.enqueue(p, now)
	}
	more = min(len(s.ready), s.parts.Config.InFlight-s.readers)
	s.readers += more
	s.wakeAt, any = s.wheel.next()
	return s.wakeAt, more, any
}

// enqueue adds a due poll to its device's queue, or postpones it if the device is paused.
func (s *Poller) enqueue(p *poll, now time.Time) {
	d := p.device
	if d.pausedUntil.After(now) {
		s.schedule(p, d.pausedUntil)
		return
	}
	d.waiting = append(d.waiting, p)
	if !d.busy {
		d.busy = true
		s.ready = append(s.ready, d)
	}
}

// schedule sets when a poll is due. It is called with mu held.
func (s *Poller) schedule(p *poll, due time.Time) {
	p.due = due
	s.wheel.put(p, due)
	if s.wakeAt.IsZero() || due.Before(s.wakeAt) {
		s.wakeAt = due
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// work runs due polls until there are none.
func (s *Poller) work(ctx context.Context) {
	for ctx.Err() == nil {
		p := s.next()
		if p == nil {
			return
		}
		s.poll(ctx, p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
}

// next returns the poll of an idle device that is due the longest. If there is none, it
// returns nil and counts the calling worker as ended.
func (s *Poller) next() *poll {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ready) > 0 {
		d := s.ready[0]
		s.ready[0] = nil
		s.ready = s.ready[1:]
		if len(d.waiting) == 0 { // the device went offline meanwhile
			s.idle(d)
			continue
		}
		p := d.waiting[0]
		d.waiting = d.waiting[1:]
		p.running = true
		return p
	}
	s.readers--
	return nil
}
