package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// relay tells the agent of a desk of what devices measure, whichever gateway there is:
// what is listened to at one is listened to at the next.
type relay struct {
	// A source is asked and left with mu held: whoever listens must not need it.
	mu     sync.Mutex
	source server.Sampler // nil while there is none
	all    map[*wanted]bool
}

// wanted is what somebody listens to.
type wanted struct {
	device, signal string
	fn             func(ferrule.Reading)
	stop           func() // nil while there is no source
}

// Samples implements agent.Sampler.
func (r *relay) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &wanted{device: device, signal: signal, fn: fn}
	w.from(r.source)
	if r.all == nil {
		r.all = make(map[*wanted]bool)
	}
	r.all[w] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.from(nil)
		delete(r.all, w)
	}
}

// use has everything come from a source from now on; nil is none.
func (r *relay) use(source server.Sampler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = source
	for w := range r.all {
		w.from(source)
	}
}

// from leaves one source for another. It is called with mu held.
func (w *wanted) from(source server.Sampler) {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
	if source != nil {
		w.stop = source.Samples(w.device, w.signal, w.fn)
	}
}

// samplerFunc is an agent.Sampler.
type samplerFunc func(device, signal string, fn func(ferrule.Reading)) (stop func())

// Samples implements agent.Sampler.
func (f samplerFunc) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	return f(device, signal, fn)
}

// samplesOf is what is measured at a gateway that was joined, until ctx ends. Each device
// that is listened to takes a connection.
func (d *desk) samplesOf(ctx context.Context, client *control.Client) server.Sampler {
	return samplerFunc(func(device, signal string, fn func(ferrule.Reading)) (stop func()) {
		return d.keepWatching(ctx, client, "what devices measure", control.Subscription{Device: device, Signal: signal, Reading: fn, Missed: d.front.HandleMissed})
	})
}

// keepWatching watches until stop is called or ctx ends, anew whenever it has ended.
func (d *desk) keepWatching(ctx context.Context, client *control.Client, what string, w control.Subscription) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := client.Watch(ctx, w); errors.Is(err, control.ErrVersion) {
				d.log.Warn(what+" is not heard", "err", err)
				return
			}
			select {
			case <-time.After(breath): // the gateway has just begun, or is about to go
				d.front.HandleMissed(0)
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
