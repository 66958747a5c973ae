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
// is waited for costs a timer; one that another node holds costs nothing until
// Reconsider is called.
package dock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
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
		return fmt.Errorf("greet: want more than nothing, got %v", c.Greet)
	case c.Greetings < 1:
		return fmt.Errorf("greetings: want at least 1, got %d", c.Greetings)
	case c.Waiting < 0:
		return fmt.Errorf("waiting: want 0 or more, got %d", c.Waiting)
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
	Apply(dialect string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest
	// Names tells whether something is laid on this one device alone.
	MatchesDevice(device string) bool
	// Misses tells what is to be laid on tools that the device does not have.
	UnknownTools(dialect string, kind ferrule.Kind, device string, m *ferrule.Manifest) []string
}

// Parts is what a dock is made of.
type Parts struct {
	Config     Config
	Connectors []transport.Connector
	Protocols  map[string]protocol.Protocol
	Overlays   Overlays
	Fleet      Fleet
	// Elsewhere is what other nodes know; nil if there are none.
	Remote Remote
	Store  *Store
	// Said is told what devices say by themselves; nil if nobody wants to know. It
	// is called by the goroutines that read links, and must not block.
	OnEvent func(ferrule.Event)
	// Node is what this node is called; empty if it has no name.
	Node string
	// Meters measure the wait for a lane, and what a device takes; nil if nobody
	// does.
	Meters ferrule.Meters
	Log    *slog.Logger
}

// Dock admits devices.
type Dock struct {
	parts     Parts
	roster    *roster
	greetings chan struct{}
	news      *news
	greeting  atomic.Int64 // how many devices are being greeted, or are about to be

	// What measures the wait for a lane, and what a device takes.
	waits, takes ferrule.Meter

	mu      sync.Mutex
	groups  map[string][]string // the addresses in each group
	groupOf map[string]string   // the group that an address was last seen in
	berths  map[string]*berth   // by address
	closed  bool
	wg      sync.WaitGroup
}

// New makes a dock. Devices that are remembered stand in the fleet at once, as
// offline.
func New(p Parts) *Dock {
	return &Dock{
		parts:     p,
		roster:    newRoster(p),
		greetings: make(chan struct{}, p.Config.Greetings),
		news:      newNews(),
		waits:     p.Meters.For(ferrule.PartLane),
		takes:     p.Meters.For(ferrule.PartDevice),
		groups:    make(map[string][]string),
		groupOf:   make(map[string]string),
		berths:    make(map[string]*berth),
	}
}

// Run watches every medium until ctx ends, and then lets go of every device. It
// fails if a medium cannot be watched.
func (d *Dock) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var hearing sync.WaitGroup
	hearing.Go(func() { d.hear(ctx) })
	failed := make(chan error, len(d.parts.Connectors))
	for _, c := range d.parts.Connectors {
		go func() {
			err := c.Watch(ctx, d.update)
			if err != nil {
				cancel()
			}
			failed <- err
		}()
	}
	var errs []error
	for range d.parts.Connectors {
		errs = append(errs, <-failed)
	}
	<-ctx.Done()
	hearing.Wait()
	d.close()
	return errors.Join(errs...)
}

// Settled waits until no device is being greeted: what was in sight is online, or
// cannot be reached for now.
func (d *Dock) Settled(ctx context.Context) {
	const pause, calm = 10 * time.Millisecond, 8
	for quiet := 0; quiet < calm; {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		quiet++
		if d.greeting.Load() > 0 {
			quiet = 0
		}
	}
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
func (d *Dock) update(group string, all []transport.Sighting) {
	for _, address := range d.compare(group, all) {
		if b := d.berth(address); b != nil {
			b.see(nil, errors.New("it is no longer in reach"))
		}
	}
	var anew []string // what is decided about all of them comes before anything is done
	for i := range all {
		anew = append(anew, d.resight(&all[i])...)
	}
	for i := range all {
		s := &all[i]
		if at, known := d.roster.address(s.Name); s.Absent != "" && known && at != s.Address {
			continue // it is remembered as it was when it was there
		}
		for b := d.berthAt(s, &anew); b != nil && !b.see(s, nil); b = d.berthAt(s, &anew) {
			// the berth was being given up; the next one is new
		}
	}
	for _, address := range anew {
		d.restart(address)
	}
}

// resight tells the roster of what is sighted anew, and returns the addresses
// that have to be admitted anew for it.
func (d *Dock) resight(s *transport.Sighting) (anew []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.berths[s.Address]
	if b == nil {
		return nil
	}
	displaced, changed := d.roster.resight(b.slot, s)
	if displaced != "" {
		anew = append(anew, displaced)
	}
	if changed {
		anew = append(anew, s.Address)
	}
	return anew
}

// compare takes in what is in a group, and tells which addresses no longer are.
func (d *Dock) compare(group string, all []transport.Sighting) (gone []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := make([]string, len(all))
	there := make(map[string]bool, len(all))
	for i := range all {
		now[i] = all[i].Address
		there[now[i]] = true
		d.groupOf[now[i]] = group
	}
	for _, address := range d.groups[group] {
		if !there[address] && d.groupOf[address] == group {
			delete(d.groupOf, address)
			gone = append(gone, address)
		}
	}
	d.groups[group] = now
	if len(now) == 0 {
		delete(d.groups, group)
	}
	return gone
}

// berth finds the berth at an address, if there is one.
func (d *Dock) berth(address string) *berth {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.berths[address]
}

// berthAt finds the berth of a sighting, or makes it; there is none once the
// dock is closed. An address that has lost its name by it has to be admitted
// anew.
func (d *Dock) berthAt(s *transport.Sighting, anew *[]string) *berth {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.berths[s.Address]
	if b == nil && !d.closed {
		var displaced string
		b, displaced = newBerth(d, s)
		d.berths[s.Address] = b
		if displaced != "" {
			*anew = append(*anew, displaced)
		}
	}
	return b
}

// restart has whatever is at an address admitted anew. Over is as berth.restart
// has it.
func (d *Dock) restart(address string) (over <-chan struct{}) {
	if b := d.berth(address); b != nil {
		return b.restart()
	}
	return nil
}

// vacate gives up a berth that has nothing in sight.
func (d *Dock) vacate(b *berth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.berths, b.slot.sighting.Address)
}

// Adopt trusts a device. One that waited for it is opened.
func (d *Dock) Adopt(id string) error {
	address, err := d.roster.adopt(id)
	if b := d.berth(address); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.resume()
	}
	return err
}

// Release lets go of a device for a while, so that other programs can have it.
// They can when it returns. The device is taken back by itself; after no time,
// at once.
func (d *Dock) Release(ctx context.Context, id string, length time.Duration) error {
	addresses, err := d.roster.release(id, time.Now().Add(length))
	if err != nil {
		return err
	}
	var closing []<-chan struct{}
	for _, address := range addresses {
		if over := d.restart(address); over != nil {
			closing = append(closing, over)
		}
	}
	for _, over := range closing {
		select {
		case <-over:
		case <-ctx.Done():
			return ferrule.Errorf(ferrule.Busy, "%s is not let go of yet: the gateway is still closing it", id)
		}
	}
	return nil
}

// Forget drops all that is remembered of a device. If it is in sight, it is
// admitted anew, as if it were seen for the first time.
func (d *Dock) Forget(id string) error {
	address, err := d.roster.forget(id)
	d.restart(address)
	return err
}
