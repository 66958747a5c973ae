package stdio

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// samples holds the agent's subscriptions to measurements and moves them to each new
// gateway.
type samples struct {
	// A source is subscribed to and left with mu held, so its callbacks must not need mu.
	mu            sync.Mutex
	source        server.Sampler // nil while there is no gateway
	subscriptions map[*subscription]bool
}

type subscription struct {
	device, signal string
	fn             func(ferrule.Reading)
	stop           func() // nil while there is no source
}

// Samples implements server.Sampler.
func (s *samples) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &subscription{device: device, signal: signal, fn: fn}
	sub.moveTo(s.source)
	if s.subscriptions == nil {
		s.subscriptions = make(map[*subscription]bool)
	}
	s.subscriptions[sub] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		sub.moveTo(nil)
		delete(s.subscriptions, sub)
	}
}

// use moves all subscriptions to a source; nil suspends them.
func (s *samples) use(source server.Sampler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.source = source
	for sub := range s.subscriptions {
		sub.moveTo(source)
	}
}

// moveTo is called with mu held.
func (sub *subscription) moveTo(source server.Sampler) {
	if sub.stop != nil {
		sub.stop()
		sub.stop = nil
	}
	if source != nil {
		sub.stop = source.Samples(sub.device, sub.signal, sub.fn)
	}
}

// samplerFunc is a server.Sampler.
type samplerFunc func(device, signal string, fn func(ferrule.Reading)) (stop func())

// Samples implements server.Sampler.
func (f samplerFunc) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	return f(device, signal, fn)
}

// samplesOf returns the measurements of a gateway in another process, until ctx ends.
// Each subscription takes a connection.
func (p *Proxy) samplesOf(ctx context.Context, client *control.Client) server.Sampler {
	return samplerFunc(func(device, signal string, fn func(ferrule.Reading)) (stop func()) {
		return p.keepWatching(ctx, client, "measurements are not received", control.Subscription{Device: device, Signal: signal, Reading: fn, Missed: p.server.HandleMissed})
	})
}

// keepWatching watches until stop is called or ctx ends, and watches again whenever the
// connection has ended. If that is impossible, it logs a warning.
func (p *Proxy) keepWatching(ctx context.Context, client *control.Client, warning string, w control.Subscription) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := client.Watch(ctx, w); errors.Is(err, control.ErrVersion) {
				p.parts.Log.Warn(warning, "err", err)
				return
			}
			select {
			case <-time.After(noticeTime): // the gateway has just started, or is ending
				p.server.HandleMissed(0)
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
