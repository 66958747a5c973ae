package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/catalog"
	"github.com/ferrulehq/ferrule/config"
	"github.com/ferrulehq/ferrule/front/agent"
	"github.com/ferrulehq/ferrule/front/control"
)

// desk is where one agent is served on standard input and output. Its view of the
// fleet and its road are those of the gateway that runs on this machine, whoever
// holds it: another process, or this one. When the gateway goes away, the agent is
// not told: its calls wait for the next.
//
//	agent ─▶ front ─▶ handle ─▶ road of the gateway ─▶ …
//	           ▲
//	         catalog ◀─ Put, Remove ─ fleet of the gateway
type desk struct {
	catalog *catalog.Catalog
	front   *agent.Front
	log     *slog.Logger

	mu      sync.Mutex
	road    *way            // nil while there is no gateway
	arrival chan struct{}   // closed when there is one
	moved   time.Time       // when the last one went away
	ready   chan struct{}   // closed when the list is worth reading
	known   map[string]bool // devices in the catalog
	seen    map[string]bool // those that the gateway of now has told of; nil once it has told all
	wished  []control.Wish  // what the last gateway was asked for
}

// way is the road of one gateway.
type way struct{ handle ferrule.Handler }

func newDesk(cfg config.Config, log *slog.Logger) *desk {
	d := &desk{
		catalog: catalog.New(cfg.Catalog()), log: log,
		arrival: make(chan struct{}), ready: make(chan struct{}), known: make(map[string]bool),
	}
	d.front = agent.New(agent.Parts{
		Config: cfg.AgentsConfig(), Catalog: d.catalog, Handle: d.handle, Ready: d.await, Version: version(), Log: log,
	})
	return d
}

// Run serves the agent until it goes away.
func (d *desk) Run(ctx context.Context) error {
	return runParts(ctx, d.front.Run, func(ctx context.Context) error {
		in, out := agent.Standard()
		return d.front.Stdio(ctx, in, out)
	})
}

// begin is called before a gateway tells of its fleet.
func (d *desk) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = make(map[string]bool)
}

// Put implements ferrule.Follower.
func (d *desk) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[dev.ID] = true
	if d.seen != nil {
		d.seen[dev.ID] = true
	}
	d.catalog.Put(dev, m)
}

// Remove implements ferrule.Follower.
func (d *desk) Remove(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, id)
	d.catalog.Remove(id)
}

// Wished implements control.Visitor.
func (d *desk) Wished(wishes []control.Wish) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wished = wishes
}

// Synced implements control.Visitor: what the gateway has not told of is not there.
func (d *desk) Synced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.known {
		if !d.seen[id] {
			delete(d.known, id)
			d.catalog.Remove(id)
		}
	}
	d.seen = nil
}

// open has calls take a road.
func (d *desk) open(handle ferrule.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.road = &way{handle}
	close(d.arrival)
}

// settled lets the agent have its list.
func (d *desk) settled() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.ready:
	default:
		close(d.ready)
	}
}

// close has calls wait for the next road.
func (d *desk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.road != nil {
		d.road, d.arrival, d.moved = nil, make(chan struct{}), time.Now()
	}
}

// await waits until the list is worth reading: agents that never look again would
// miss what comes a moment later.
func (d *desk) await(ctx context.Context) {
	select {
	case <-d.ready:
	case <-time.After(settleTime + time.Second):
	case <-ctx.Done():
	}
}

// patience is how long a call waits for a gateway, or for a device that the last
// gateway had and this one is still connecting to.
const patience = 10 * time.Second

// handle takes the road of the gateway of now. A call that was not sent when the
// gateway went away takes the road of the next; so does one that may have been, if
// sending it again does no harm.
func (d *desk) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	d.await(ctx)
	until := time.Now().Add(patience)
	for again := false; ; {
		road, err := d.wait(ctx, until)
		if err != nil {
			return nil, err
		}
		result, err := road.handle(ctx, call)
		switch {
		case err == nil:
			return result, nil
		case errors.Is(err, control.ErrNoGateway):
			// nothing was sent
		case ferrule.AsError(err).Code == ferrule.Offline && d.returning(call.Device, until):
			// nothing was sent
		case ferrule.AsError(err).Code == ferrule.Unanswered && !again && d.gone(road) && d.repeatable(call):
			again = true
		default:
			return nil, err
		}
		call.Report(ferrule.Progress{Message: "the gateway has changed hands; waiting for " + call.Device})
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// wait returns the road, as soon as there is one.
func (d *desk) wait(ctx context.Context, until time.Time) (*way, error) {
	for {
		d.mu.Lock()
		road, arrival := d.road, d.arrival
		d.mu.Unlock()
		if road != nil {
			return road, nil
		}
		select {
		case <-arrival:
		case <-time.After(time.Until(until)):
			return nil, ferrule.Errorf(ferrule.Offline, "no gateway is running").WithHint("`ferrule doctor` tells why")
		case <-ctx.Done():
			return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for a gateway")
		}
	}
}

// gone tells whether a road is no longer that of now.
func (d *desk) gone(w *way) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.road != w
}

// returning tells whether a device can be expected back: the gateway has changed
// hands a moment ago.
func (d *desk) returning(device string, until time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[device] && time.Since(d.moved) < patience && time.Now().Before(until)
}

// repeatable tells whether a call may be made twice.
func (d *desk) repeatable(call *ferrule.Call) bool {
	_, m, ok := d.catalog.Lookup(call.Device)
	if !ok || m == nil {
		return false
	}
	t := m.Tool(call.Tool)
	return t != nil && t.Repeatable()
}

// allWishes are what this process asks for, and what the last gateway was asked
// for, which may have been by somebody who is gone.
func (d *desk) allWishes(own []control.Wish) []control.Wish {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Clone(own)
	for _, w := range d.wished {
		if !slices.ContainsFunc(all, func(had control.Wish) bool { return had.Medium == w.Medium && had.Address == w.Address }) {
			all = append(all, w)
		}
	}
	return all
}
