package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// desk is where one agent is served on standard input and output. Its view of the
// fleet and its road are those of the gateway that runs on this machine, whoever
// holds it: another process, or this one. When the gateway goes away, the agent's
// session stays, its list too, for a while, and its calls wait for the next.
//
//	agent ─▶ front ─▶ handle ─▶ road of the gateway ─▶ …
//	         ▲   ▲
//	         │   relay ◀─ Samples ─ what is measured at the gateway
//	         catalog ◀─ Put, Remove ─ fleet of the gateway
type desk struct {
	catalog *catalog.Catalog
	front   *server.Server
	relay   relay
	log     *slog.Logger

	mu     sync.Mutex
	road   *way                    // nil while there is no gateway
	moved  time.Time               // when the last one went away
	news   chan struct{}           // closed when there is a road, or a device is online
	ready  chan struct{}           // closed when the list is worth reading
	known  map[string]bool         // devices in the catalog
	seen   map[string]bool         // those that the gateway of now has told of; nil once it has told all
	away   map[string]*absence     // devices that the agent sees, and that are being connected to
	wished []control.DeviceRequest // what the last gateway was asked for
}

// way is the road of one gateway, and the calls that are on it.
type way struct {
	handle ferrule.Handler
	calls  sync.WaitGroup
}

// absence is what is known of a device that may be back in a moment.
type absence struct {
	device   *ferrule.Device
	manifest *ferrule.Manifest
}

func newDesk(cfg config.Config, log *slog.Logger) *desk {
	d := &desk{
		catalog: catalog.New(cfg.Catalog()), log: log,
		news: make(chan struct{}), ready: make(chan struct{}),
		known: make(map[string]bool), away: make(map[string]*absence),
	}
	d.front = server.New(server.Parts{
		Config: cfg.AgentsConfig(), Catalog: d.catalog, Handle: d.handle, Samples: &d.relay, Ready: d.await, Version: version(), Log: log,
	})
	return d
}

// Run serves the agent until it goes away.
func (d *desk) Run(ctx context.Context) error {
	return runParts(ctx, d.front.Run, func(ctx context.Context) error {
		in, out := server.Standard()
		return d.front.Stdio(ctx, in, out)
	})
}

// begin is called before a gateway tells of its fleet.
func (d *desk) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = make(map[string]bool)
}

// Put implements ferrule.Follower. The next gateway has to connect to all devices
// anew: the agent is told that one is away only if it stays away.
func (d *desk) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[dev.ID] = true
	if d.seen != nil {
		d.seen[dev.ID] = true
	}
	if dev.State == ferrule.StateOnline {
		delete(d.away, dev.ID)
		d.catalog.Put(dev, m)
		d.tell()
		return
	}
	before, _, ok := d.catalog.Lookup(dev.ID)
	if ok && before.State == ferrule.StateOnline && time.Since(d.moved) < grace {
		d.miss(&absence{dev, m})
		return
	}
	delete(d.away, dev.ID)
	d.catalog.Put(dev, m)
}

// grace is how long a device may take to be back after the gateway has changed
// hands, before the agent is told that it is away.
const grace = 5 * time.Second

// miss gives a device time to come back. It is called with mu held.
func (d *desk) miss(a *absence) {
	id := a.device.ID
	d.away[id] = a
	time.AfterFunc(grace, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.away[id] == a {
			delete(d.away, id)
			d.catalog.Put(a.device, a.manifest)
		}
	})
}

// tell wakes the calls that wait. It is called with mu held.
func (d *desk) tell() {
	close(d.news)
	d.news = make(chan struct{})
}

// Remove implements ferrule.Follower.
func (d *desk) Remove(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(id)
}

func (d *desk) remove(id string) {
	delete(d.known, id)
	delete(d.away, id)
	d.catalog.Remove(id)
}

// Requested implements control.FleetWatcher.
func (d *desk) Requested(wishes []control.DeviceRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wished = wishes
}

// Synced implements control.FleetWatcher: what the gateway has not told of is not there.
func (d *desk) Synced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.known {
		if !d.seen[id] {
			d.remove(id)
		}
	}
	d.seen = nil
}

// open has calls take a road.
func (d *desk) open(handle ferrule.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.road = &way{handle: handle}
	d.tell()
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

// close has calls wait for the next road. Done waits for those that are on the
// last one.
func (d *desk) close() (done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.road
	if last == nil {
		return func() {}
	}
	d.road, d.moved = nil, time.Now()
	d.tell()
	return last.calls.Wait
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
	var sent *ferrule.Error // what came of it when it may have been sent
	for first := true; ; first = false {
		news := d.next()
		result, went, err := d.take(ctx, call)
		if err == nil {
			return result, nil
		}
		e := ended(ctx, call, err)
		switch {
		case e.MayHaveRun():
			if sent != nil || !d.repeatable(call) || !d.left(went) {
				return nil, e
			}
			sent = e
		case !time.Now().Before(until) || ctx.Err() != nil || !d.comes(e, call):
			switch {
			case sent != nil:
				return nil, sent // whatever came of the second
			case e == errNoRoad && ctx.Err() != nil:
				return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for a gateway")
			}
			return nil, e
		}
		if first {
			call.Report(ferrule.Progress{Message: "the gateway has changed hands; waiting for " + call.Device})
		}
		select {
		case <-news:
		case <-time.After(time.Until(until)):
		case <-ctx.Done():
		}
	}
}

// errNoRoad is why a call waits: it was not sent.
var errNoRoad = ferrule.Errorf(ferrule.Offline, "no gateway is running").WithHint("`ferrule doctor` tells why")

// take takes the road, if there is one, and tells which it was.
func (d *desk) take(ctx context.Context, call *ferrule.Call) (*ferrule.Result, *way, error) {
	d.mu.Lock()
	w := d.road
	if w != nil {
		w.calls.Add(1)
		defer w.calls.Done()
	}
	d.mu.Unlock()
	if w == nil {
		return nil, nil, errNoRoad
	}
	result, err := w.handle(ctx, call)
	return result, w, err
}

// ended is what an error means to the agent: a gateway that ends says that its
// callers went away, and here nobody did.
func ended(ctx context.Context, call *ferrule.Call, err error) *ferrule.Error {
	if errors.Is(err, control.ErrNoGateway) {
		return errNoRoad
	}
	e := ferrule.AsError(err)
	if e.Code != ferrule.Cancelled || ctx.Err() != nil {
		return e
	}
	if e.MayHaveRun() {
		return ferrule.Errorf(ferrule.Unanswered, "the gateway ended while %s was at %s", call.Device, call.Tool)
	}
	return errNoRoad
}

// comes tells whether a call that was not sent is worth keeping: there will be
// another gateway, or the device has yet to come back to the one there is.
func (d *desk) comes(e *ferrule.Error, call *ferrule.Call) bool {
	return e == errNoRoad || e.Code == ferrule.Offline && d.returning(call.Device)
}

// next is closed when something may have become possible.
func (d *desk) next() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news
}

// left tells whether a road is no longer that of now. That the gateway has gone
// may be noticed here a moment after a call has failed for it.
func (d *desk) left(w *way) bool {
	late := time.After(breath)
	for {
		d.mu.Lock()
		left, news := d.road != w, d.news
		d.mu.Unlock()
		if left {
			return true
		}
		select {
		case <-news:
		case <-late:
			return false
		}
	}
}

// breath is how long it may take until it is noticed that a gateway has gone.
const breath = 200 * time.Millisecond

// returning tells whether a device can be expected back: the gateway has changed
// hands a moment ago.
func (d *desk) returning(device string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[device] && time.Since(d.moved) < patience
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

// lastWishes are what the last gateway was asked for, by this process or by somebody
// who may be gone.
func (d *desk) lastWishes() []control.DeviceRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wished
}
