// Package poller asks devices for what they measure, all of them on one wheel.
//
//	grammar's probes ─┐
//	polled tools ─────┼─▶ plan ─▶ wheel ─due─▶ device ─▶ ready ─▶ at most in_flight reads
//	overlays' probes ─┘            ▲                                │ the road, as any call
//	                               └────── when to ask again ───────┤
//	                                                                ▼
//	       history ─Tail─▶ signals: rings are stitched, states become edges ─▶ Publish
//
// One goroutine turns the wheel. Those that read are there while there is something to
// read: at rest there is one goroutine, whatever the number of devices. A device is
// asked for one thing at a time.
//
// A device that struggles is left in peace: after each failure the pause is twice as
// long, and an answer that takes more than a quarter of the time to the next question
// makes that time longer. Whatever a reading brought has not happened unless Publish took
// it: what follows goes on from the state before it.
package poller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config is what can be set about measuring.
type Config struct {
	// Enabled tells whether devices are asked at all.
	Enabled bool
	// Fastest is the shortest time from one question to the next of the same probe.
	Fastest time.Duration
	// InFlight is how many devices may be asked at once.
	InFlight int
}

// DefaultConfig measures what devices and their owners want to be measured.
func DefaultConfig() Config {
	return Config{Enabled: true, Fastest: 100 * time.Millisecond, InFlight: 64}
}

// The bounds of the config.
const (
	minFastest  = tick
	maxFastest  = time.Hour
	maxInFlight = 4096
)

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if c.Fastest < minFastest || c.Fastest > maxFastest {
		return fmt.Errorf("fastest: want from %v to %v, got %v", minFastest, maxFastest, c.Fastest)
	}
	if c.InFlight < 1 || c.InFlight > maxInFlight {
		return fmt.Errorf("in_flight: want from 1 to %d, got %d", maxInFlight, c.InFlight)
	}
	return nil
}

// Past is what was measured before. Tail is the last n samples of a signal, the oldest
// first, with all that was published before; it may wait for that. Latest is the last of
// each signal, as far as is known.
type Past interface {
	Tail(ctx context.Context, device, signal string, n int) ([]ferrule.Sample, error)
	Latest(ctx context.Context, device string) ([]ferrule.Latest, error)
}

// Parts is what sense works with.
type Parts struct {
	Config Config
	// Handle is the road.
	Handle ferrule.Handler
	// Grammars tell what the devices of a dialect measure, by dialect.
	Grammars map[string]func(laid *ferrule.Manifest) []ferrule.Poll
	// Publish takes a reading, or tells that there is no room for it. It must not
	// block.
	Publish func(ferrule.Reading) bool
	// Past is nil if nothing is kept.
	Past Past
	Node string
	Log  *slog.Logger
}

// Sense asks devices for what they measure. It follows the devices of its node.
type Poller struct {
	parts  Parts
	counts counts
	// wake tells the wheel that something is due earlier.
	wake chan struct{}

	mu      sync.Mutex
	wheel   *wheel
	looks   time.Time // when the wheel is looked at next; zero if nothing is in it
	devices map[string]*device
	plans   map[*ferrule.Manifest]*plan
	ready   []*device // those of which something is due, and that are not being asked
	readers int       // goroutines
	warned  time.Time // when it was last said that there is no room for readings
}

// New makes a Sense, which does nothing until Run.
func New(p Parts) *Poller {
	return &Poller{
		parts: p, wake: make(chan struct{}, 1), wheel: newWheel(time.Now()),
		devices: make(map[string]*device), plans: make(map[*ferrule.Manifest]*plan),
	}
}

// Run asks devices until ctx ends.
func (s *Poller) Run(ctx context.Context) error {
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
			readers.Go(func() { s.read(ctx) })
		}
		if any {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
	}
}

// turn has those wait for their device that are due, and tells how many more goroutines
// are to read, and when there is more to do.
func (s *Poller) turn(now time.Time) (next time.Time, more int, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.wheel.turn(now) {
		s.isDue(p, now)
	}
	more = min(len(s.ready), s.parts.Config.InFlight-s.readers)
	s.readers += more
	s.looks, any = s.wheel.next()
	return s.looks, more, any
}

// isDue has a probe wait for its device, unless that is to be left in peace.
func (s *Poller) isDue(p *probe, now time.Time) {
	d := p.device
	if d.rests.After(now) {
		s.schedule(p, d.rests)
		return
	}
	d.waiting = append(d.waiting, p)
	if !d.busy {
		d.busy = true
		s.ready = append(s.ready, d)
	}
}

// schedule has a probe be due at a time. It is called with mu held.
func (s *Poller) schedule(p *probe, due time.Time) {
	p.due = due
	s.wheel.put(p, due)
	if s.looks.IsZero() || due.Before(s.looks) {
		s.looks = due
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// read asks devices for what is due, until nothing is.
func (s *Poller) read(ctx context.Context) {
	for ctx.Err() == nil {
		p := s.take()
		if p == nil {
			return
		}
		s.ask(ctx, p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
}

// take is what is due for the longest time, of a device that is not being asked; nil if
// there is none, and then there is one reader less.
func (s *Poller) take() *probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ready) > 0 {
		d := s.ready[0]
		s.ready[0] = nil
		s.ready = s.ready[1:]
		if len(d.waiting) == 0 { // it was there, and has gone
			s.idle(d)
			continue
		}
		p := d.waiting[0]
		d.waiting = d.waiting[1:]
		p.asking = true
		return p
	}
	s.readers--
	return nil
}
