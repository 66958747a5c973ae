package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// hubs keeps the configured connections of one sort to something that has devices behind it:
// MQTT brokers, Home Assistants. Each has a name.
type hubs[C comparable, H hub] struct {
	// name returns the name of a configuration, and start connects.
	name  func(C) string
	start func(ctx context.Context, cfg C, report reportFunc) H

	mu      sync.Mutex
	wanted  []C
	changed chan struct{} // has an element if wanted changed
	running map[string]H
	configs map[string]C // of what is running
}

// reportFunc reports the devices of a group, as transport.Connector does.
type reportFunc = func(group string, all []transport.Sighting)

// hub is a connection that is in use.
type hub interface {
	// end disconnects. Nothing is reported after it. It returns the groups that were reported.
	end() (groups []string)
	// problem says what is wrong, beginning with what and its name; "" if nothing is.
	problem() string
	// reading reports whether it is being connected to for the first time, or read.
	reading() bool
}

func newHubs[C comparable, H hub](all []C, name func(C) string) *hubs[C, H] {
	return &hubs[C, H]{name: name, wanted: all, changed: make(chan struct{}, 1), running: make(map[string]H), configs: make(map[string]C)}
}

// set replaces the configurations. A hub whose settings are the same stays connected.
func (h *hubs[C, H]) set(all []C) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = all
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Watch implements transport.Connector. The gateway goes on if a hub cannot be reached; its
// status says so.
func (h *hubs[C, H]) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	var one sync.Mutex
	report := func(group string, all []transport.Sighting) {
		one.Lock()
		defer one.Unlock()
		update(group, all)
	}
	defer func() {
		for _, ended := range h.take(func(C) bool { return false }) {
			ended.end()
		}
	}()
	for {
		h.mu.Lock()
		wanted := h.wanted
		h.mu.Unlock()
		for _, ended := range h.take(func(cfg C) bool { return slices.Contains(wanted, cfg) }) {
			for _, group := range ended.end() {
				report(group, nil)
			}
		}
		for _, cfg := range wanted {
			h.ensure(ctx, cfg, report)
		}
		select {
		case <-h.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// take removes and returns the hubs that are not kept.
func (h *hubs[C, H]) take(keep func(C) bool) (ended []H) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, cfg := range h.configs {
		if !keep(cfg) {
			ended = append(ended, h.running[name])
			delete(h.running, name)
			delete(h.configs, name)
		}
	}
	return ended
}

// ensure connects to a hub, unless it is in use.
func (h *hubs[C, H]) ensure(ctx context.Context, cfg C, report reportFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := h.name(cfg)
	if _, used := h.configs[name]; used {
		return
	}
	h.running[name], h.configs[name] = h.start(ctx, cfg, report), cfg
}

// problems says what is wrong with hubs, in the order of their names.
func (h *hubs[C, H]) problems() (all []string) {
	h.mu.Lock()
	running := maps.Clone(h.running)
	h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(running)) {
		if text := running[name].problem(); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// settle waits until the connected hubs were read, so that their devices are known. It does
// not wait for one that cannot be reached.
func (h *hubs[C, H]) settle(ctx context.Context) {
	const pause = 20 * time.Millisecond
	for h.reading() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// reading reports whether a hub is being connected to for the first time, or read.
func (h *hubs[C, H]) reading() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cfg := range h.wanted {
		if current, used := h.configs[h.name(cfg)]; !used || current != cfg || h.running[h.name(cfg)].reading() {
			return true
		}
	}
	return false
}

// connection is what runs while a hub is in use.
type connection struct {
	name  string
	stop  context.CancelFunc
	tried <-chan struct{} // closed when it is connected, or that failed
	done  chan struct{}   // closed when everything has ended

	mu     sync.Mutex
	groups map[string]bool // that were reported
	failed error           // why a part ended
}

func newConnection(name string, stop context.CancelFunc, tried <-chan struct{}) *connection {
	return &connection{name: name, stop: stop, tried: tried, done: make(chan struct{}), groups: make(map[string]bool)}
}

// run runs all parts until ctx ends. If one fails, the others go on.
func (c *connection) run(ctx context.Context, parts []func(context.Context) error, log *slog.Logger) {
	defer close(c.done)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, part := range parts {
		wg.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				log.Error("a part of the connection ended", "err", err)
				c.mu.Lock()
				defer c.mu.Unlock()
				c.failed = errors.Join(c.failed, err)
			}
		})
	}
}

// watches returns a part that reports what a connector finds, with the name of the hub. The
// groups are remembered, so that they can be cleared.
func (c *connection) watches(connector transport.Connector, report reportFunc) func(context.Context) error {
	return func(ctx context.Context) error {
		return connector.Watch(ctx, func(group string, all []transport.Sighting) {
			for i := range all {
				if !all[i].Doubted {
					all[i].Hub = c.name
				}
			}
			c.mu.Lock()
			if c.groups[group] = true; len(all) == 0 {
				delete(c.groups, group)
			}
			c.mu.Unlock()
			report(group, all)
		})
	}
}

// end implements hub.
func (c *connection) end() []string {
	c.stop()
	<-c.done
	return slices.Collect(maps.Keys(c.groups))
}

// failure returns why a part ended; nil if all go on.
func (c *connection) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// wasTried reports whether the first attempt to connect has ended.
func (c *connection) wasTried() bool {
	select {
	case <-c.tried:
		return true
	default:
		return false
	}
}
