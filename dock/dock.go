// Package dock turns sightings into admitted devices, and holds each device's
// lane. It is the only place where something is tried again.
//
//	Connector ─update(group, all)─▶ Dock      finds what changed in the group
//	                                 │ a berth an address
//	                                 ▼
//	          ┌────▶ open, greet ─▶ admit ─▶ attend ──┐
//	          │      (Dialect)      (ID,     (Run)    │
//	          │                      trust,           │
//	          │                      Kind)            │
//	          └──────── back-off, with jitter ◀───────┘
//
// A device that is admitted costs one goroutine, which reads its link; one that
// is waited for costs a timer.
package dock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/dialect"
	"github.com/ferrulehq/ferrule/wire"
)

// Config is what can be set about the dock.
type Config struct {
	// RetryMin and RetryMax bound the wait before a device is tried again; it
	// doubles each time.
	RetryMin, RetryMax time.Duration
	// Greet bounds one greeting.
	Greet time.Duration
	// Greetings is how many devices are greeted at once.
	Greetings int
	// Waiting is how many calls may wait for one device.
	Waiting int
}

// DefaultConfig suits boards and storms of them.
func DefaultConfig() Config {
	return Config{
		RetryMin: 250 * time.Millisecond, RetryMax: 30 * time.Second,
		Greet: 2 * time.Minute, Greetings: 1024, Waiting: 32,
	}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	switch {
	case c.RetryMin <= 0 || c.RetryMax < c.RetryMin:
		return fmt.Errorf("retry: want 0 < min <= max, got %v and %v", c.RetryMin, c.RetryMax)
	case c.Greet <= 0:
		return fmt.Errorf("greet: want more than %v", c.Greet)
	case c.Greetings < 1 || c.Waiting < 0:
		return fmt.Errorf("want at least one greeting and no less than nothing waiting")
	}
	return nil
}

// Fleet is told of every device and every change to it.
type Fleet interface {
	Put(dev *ferrule.Device, laid *ferrule.Manifest, way ferrule.Handler)
	Remove(id string)
}

// Overlays lays on a manifest what its device cannot say.
type Overlays interface {
	Lay(dialect string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest
	// Names tells whether something is laid on this one device alone.
	Names(device string) bool
}

// Parts is what a dock is made of.
type Parts struct {
	Config     Config
	Connectors []wire.Connector
	Dialects   map[string]dialect.Dialect
	Overlays   Overlays
	Fleet      Fleet
	Memory     *Memory
	Log        *slog.Logger
}

// Dock admits devices.
type Dock struct {
	Parts
	kinds     *kinds
	greetings chan struct{}
	naming    sync.Mutex // held from choosing an ID until it is kept

	mu     sync.Mutex
	groups map[string]map[string]bool // the addresses in each group
	berths map[string]*berth          // by address
	byID   map[string]*berth
	closed bool
	wg     sync.WaitGroup
}

// New makes a dock. Devices that are remembered stand in the fleet at once, as
// offline.
func New(p Parts) *Dock {
	d := &Dock{
		Parts:     p,
		kinds:     newKinds(p.Overlays),
		greetings: make(chan struct{}, p.Config.Greetings),
		groups:    make(map[string]map[string]bool),
		berths:    make(map[string]*berth),
		byID:      make(map[string]*berth),
	}
	for _, dev := range p.Memory.Devices() {
		var laid *ferrule.Manifest
		if m, err := p.Memory.Manifest(dev.Kind); err == nil {
			laid = d.kinds.use(dev, m)
		}
		p.Fleet.Put(dev, laid, nil)
	}
	return d
}

// Run watches every medium until ctx ends, and then lets go of every device. It
// fails if a medium cannot be watched.
func (d *Dock) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(d.Connectors))
	for _, c := range d.Connectors {
		go func() {
			err := c.Watch(ctx, d.update)
			if err != nil {
				cancel()
			}
			failed <- err
		}()
	}
	var errs []error
	for range d.Connectors {
		errs = append(errs, <-failed)
	}
	<-ctx.Done()
	d.close()
	return errors.Join(errs...)
}

// close ends every berth and waits for it.
func (d *Dock) close() {
	d.mu.Lock()
	d.closed = true
	berths := make([]*berth, 0, len(d.berths))
	for _, b := range d.berths {
		berths = append(berths, b)
	}
	d.mu.Unlock()
	for _, b := range berths {
		b.see(nil, errStopped)
	}
	d.wg.Wait()
}

// errStopped is why devices are offline after the gateway has ended.
var errStopped = errors.New("the gateway was stopped")

// start runs fn in a goroutine that close waits for, unless the dock is closed.
func (d *Dock) start(fn func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.wg.Go(fn)
	return true
}

// update takes the whole picture of a group and acts on what is new in it.
func (d *Dock) update(group string, all []wire.Sighting) {
	now := make(map[string]bool, len(all))
	for i := range all {
		now[all[i].Address] = true
	}
	d.mu.Lock()
	before := d.groups[group]
	d.groups[group] = now
	if len(now) == 0 {
		delete(d.groups, group)
	}
	d.mu.Unlock()
	for i := range all {
		for b := d.berthAt(&all[i]); b != nil && !b.see(&all[i], nil); b = d.berthAt(&all[i]) {
			// the berth was being given up; the next one is new
		}
	}
	for address := range before {
		d.mu.Lock()
		b := d.berths[address]
		d.mu.Unlock()
		if b != nil && !now[address] {
			b.see(nil, errors.New("it is no longer in reach"))
		}
	}
}

// berthAt finds the berth of a sighting, or makes it; there is none once the
// dock is closed.
func (d *Dock) berthAt(s *wire.Sighting) *berth {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.berths[s.Address]
	if b == nil && !d.closed {
		b = newBerth(d, s)
		d.berths[s.Address] = b
		d.byID[b.device.ID] = b
	}
	return b
}

// release gives up a berth that has nothing in sight.
func (d *Dock) release(b *berth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.berths[b.address] == b {
		delete(d.berths, b.address)
	}
	if b.device != nil && d.byID[b.device.ID] == b {
		delete(d.byID, b.device.ID)
	}
}

// rename notes which berth has an ID, and which ID it no longer has.
func (d *Dock) rename(b *berth, from, to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byID[from] == b {
		delete(d.byID, from)
	}
	d.byID[to] = b
}

// berthOf finds the berth of a device, if it is or was in sight.
func (d *Dock) berthOf(id string) *berth {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byID[id]
}

// Adopt trusts a device.
func (d *Dock) Adopt(id string) error {
	dev, ok := d.Memory.Get(id)
	if !ok {
		return notKnown(id)
	}
	if b := d.berthOf(id); b != nil {
		return b.adopt()
	}
	adopted := *dev
	adopted.Trust = ferrule.TrustAdopted
	d.Fleet.Put(&adopted, d.kinds.of(id), nil)
	return d.Memory.Keep(&adopted, nil)
}

// Forget drops all that is remembered of a device. If it is in sight, it is
// admitted anew, as if it were seen for the first time.
func (d *Dock) Forget(id string) error {
	if _, ok := d.Memory.Get(id); !ok {
		return notKnown(id)
	}
	err := d.Memory.Forget(id)
	d.Fleet.Remove(id)
	d.kinds.forget(id)
	d.mu.Lock()
	b := d.byID[id]
	delete(d.byID, id)
	d.mu.Unlock()
	if b != nil {
		b.forget()
	}
	return err
}

// displace takes a device's ID from it, because the owner has given that to
// another. If it is in sight, it is admitted anew.
func (d *Dock) displace(dev *ferrule.Device) {
	d.Log.Info("the name now belongs to another device", "device", dev.ID)
	if err := d.Memory.Forget(dev.ID); err != nil {
		d.Log.Warn("a device is not forgotten", "device", dev.ID, "err", err)
	}
	d.kinds.forget(dev.ID)
	d.mu.Lock()
	b := d.berths[dev.Address]
	d.mu.Unlock()
	if b != nil {
		b.forget()
	}
}

func notKnown(id string) error {
	return ferrule.Errorf(ferrule.NotFound, "there is no device %q", id).WithHint("`ferrule devices` lists the devices")
}

// Trace calls fn with everything that is seen on the wire to a device, across
// reconnects, until ctx ends. Fn is called from the goroutines that send and
// receive: it must be quick.
func (d *Dock) Trace(ctx context.Context, id string, fn func(ferrule.Trace)) error {
	b := d.berthOf(id)
	if b == nil {
		return notKnown(id)
	}
	stop := b.watch(fn)
	defer stop()
	<-ctx.Done()
	return nil
}
