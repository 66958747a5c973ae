// Package dock keeps devices connected. It opens a link to every peer that a
// transport has found, lets the protocol greet it, and admits it to the fleet.
// When a link breaks, the dock reconnects with back-off, and at once if a call needs
// the device. It is the only package
// that retries towards devices: connections here, and in call.go a call that may
// safely be sent twice.
//
//	Connector --update(group, all)--> Dock      compares with the group before
//	                                   |
//	                                   v  one connection supervisor per address
//	            +----> open, greet -> admit -> run session --+
//	            |      (Protocol)     (ID, trust,            |
//	            |                      Kind)                 |
//	            +---------- back-off, with jitter <----------+
//
//	fleet --handler--> lane --> session --> link
//
// Each device has a lane: a queue that lets one call through at a time, agents
// before polling. The registry decides which device has which ID, and publishes
// every change to the fleet. The Store remembers devices across restarts.
//
// A connected device costs one goroutine, which reads its link. A device that is
// waited for costs a timer. A device that another node holds costs nothing until
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

// Config holds the settings of the dock.
type Config struct {
	// RetryMin and RetryMax limit the wait before a reconnect. It doubles each
	// time.
	RetryMin, RetryMax time.Duration
	// Greet limits the time of one greeting.
	Greet time.Duration
	// Greetings is the maximum number of concurrent greetings.
	Greetings int
	// Waiting is the maximum number of calls that wait for one device.
	Waiting int
	// Grace is how long a device may be away and still be expected back in a moment.
	Grace time.Duration
	// Wait is how long a call waits for a device that is being reconnected.
	Wait time.Duration
	// PinUSB reports whether changes of a device that is plugged into this machine wait
	// for its owner, like those of all others.
	PinUSB bool
}

// DefaultConfig suits single boards as well as thousands at once.
func DefaultConfig() Config {
	return Config{
		RetryMin: 250 * time.Millisecond, RetryMax: 30 * time.Second,
		Greet: 2 * time.Minute, Greetings: 1024, Waiting: 32,
		Grace: 30 * time.Second, Wait: 5 * time.Second,
	}
}

// Check returns an error if a value is out of range.
func (c Config) Check() error {
	switch {
	case c.RetryMin <= 0 || c.RetryMax < c.RetryMin:
		return fmt.Errorf("retry: must be 0 < min <= max, got %v and %v", c.RetryMin, c.RetryMax)
	case c.Greet <= 0:
		return fmt.Errorf("greet: must be greater than 0, got %v", c.Greet)
	case c.Greetings < 1:
		return fmt.Errorf("greetings: must be at least 1, got %d", c.Greetings)
	case c.Waiting < 0:
		return fmt.Errorf("waiting: must be 0 or more, got %d", c.Waiting)
	case c.Grace < 0 || c.Wait < 0:
		return fmt.Errorf("retry: grace and wait must be 0 or more, got %v and %v", c.Grace, c.Wait)
	}
	return nil
}

// Fleet receives every device and every change to it.
type Fleet interface {
	Put(dev *ferrule.Device, effective *ferrule.Manifest, handler ferrule.Handler)
	Remove(id string)
}

// Overlays applies overlays to manifests. It should cache: the dock calls Apply for
// every device that connects.
type Overlays interface {
	Apply(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest
	// MatchesDevice reports whether an overlay is for this device only.
	MatchesDevice(device string) bool
	// UnknownTools returns notes on tools that only overlays know.
	UnknownTools(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) []string
}

// Parts is what a dock uses.
type Parts struct {
	Config     Config
	Connectors []transport.Connector
	Protocols  map[string]protocol.Protocol
	Overlays   Overlays
	Fleet      Fleet
	// Remote knows the devices of other nodes; nil if there are none.
	Remote Remote
	Store  *Store
	// OnEvent receives notifications of devices; it may be nil. It is called by
	// the goroutines that read links and must not block.
	OnEvent func(ferrule.Event)
	// OnReport receives what devices measure and report by themselves; it may be nil. It
	// must not block.
	OnReport func(device string, at time.Time, measured []ferrule.Measurement)
	// Node is the name of this node; it may be empty.
	Node string
	// Meters measures the wait for a lane and the time of a device; it may be nil.
	Meters ferrule.Meters
	Log    *slog.Logger
}

// Dock keeps devices connected.
type Dock struct {
	parts     Parts
	registry  *registry
	greetings chan struct{}
	reading   sync.Mutex // held while the manifest of a stranger is read
	changes   *changedIDs
	greeting  atomic.Int64 // devices being greeted or about to be
	news      broadcast    // an attempt to connect has ended

	// Greetings of peers that nobody adopted.
	strangers, foundStrangers, largeStrangers chan struct{}

	laneMeter, deviceMeter ferrule.Meter

	mu          sync.Mutex
	groups      map[string][]string    // addresses by group
	groupOf     map[string]string      // group by address
	supervisors map[string]*supervisor // by address
	closed      bool
	wg          sync.WaitGroup
}

// New returns a dock. Devices in the store are put into the fleet as offline.
func New(p Parts) *Dock {
	slots := func(limit int) chan struct{} { return make(chan struct{}, min(p.Config.Greetings, limit)) }
	d := &Dock{
		parts:       p,
		greetings:   slots(p.Config.Greetings),
		changes:     newChangedIDs(),
		laneMeter:   p.Meters.For(ferrule.PartLane),
		deviceMeter: p.Meters.For(ferrule.PartDevice),
		groups:      make(map[string][]string),
		groupOf:     make(map[string]string),
		supervisors: make(map[string]*supervisor),
	}
	d.strangers, d.foundStrangers, d.largeStrangers = slots(maxStrangers), slots(maxFoundStrangers), slots(maxLargeStrangers)
	d.registry = newRegistry(p, d.serveAbsent)
	return d
}

// Run runs all connectors until ctx ends, and then closes all connections. It
// fails if a connector fails.
func (d *Dock) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var processing sync.WaitGroup
	processing.Go(func() { d.processChanges(ctx) })
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
	processing.Wait()
	d.close()
	return errors.Join(errs...)
}

// Settled waits until no device has been greeted for some time: every device in sight is online
// or has failed to connect. Zero is for devices whose addresses are known, which connectors
// report at once; others take a while to be found.
func (d *Dock) Settled(ctx context.Context, calm time.Duration) {
	for _, c := range d.parts.Connectors {
		if look, ok := c.(interface{ Looked() <-chan struct{} }); ok {
			select {
			case <-look.Looked():
			case <-ctx.Done():
				return
			}
		}
	}
	for since := time.Now(); ; { // since then, none was seen
		news := d.news.next()
		var end <-chan time.Time
		if d.greeting.Load() > 0 {
			since = time.Time{}
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) >= calm {
				return
			}
			end = time.After(calm - time.Since(since))
		}
		select {
		case <-news:
		case <-end:
		case <-ctx.Done():
			return
		}
	}
}

// greeted ends a greeting.
func (d *Dock) greeted() {
	if d.greeting.Add(-1) == 0 {
		d.news.notify()
	}
}

// close ends all supervisors and waits for them.
func (d *Dock) close() {
	d.mu.Lock()
	d.closed = true
	all := make([]*supervisor, 0, len(d.supervisors))
	for _, c := range d.supervisors {
		all = append(all, c)
	}
	d.mu.Unlock()
	for _, c := range all {
		c.setSighting(nil, errStopped)
	}
	d.wg.Wait()
}

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

// update receives all sightings of a group and acts on the differences.
func (d *Dock) update(group string, all []transport.Sighting) {
	for _, address := range d.updateGroup(group, all) {
		if c := d.supervisor(address); c != nil {
			gone := errors.New("no longer in reach")
			switch s := c.slot.sighting; {
			case s.Withdrawn:
				gone = errors.New(s.Absent)
			case s.Hub != "":
				gone = fmt.Errorf("no longer reported by %s", s.Hub)
			}
			c.setSighting(nil, gone)
		}
	}
	var restart []string // restarted after all decisions are made
	for i := range all {
		restart = append(restart, d.updateSighting(&all[i])...)
	}
	for i := range all {
		s := &all[i]
		if at, known := d.registry.address(s.Name); s.Absent != "" && known && at != s.Address {
			continue // it keeps the address at which it was last present
		}
		for c := d.supervisorFor(s, &restart); c != nil && !c.setSighting(s, nil); c = d.supervisorFor(s, &restart) {
			// that supervisor was closing; the next one is new
		}
	}
	for _, address := range restart {
		d.restart(address)
	}
}

// updateSighting passes a new sighting of a known address to the registry. It
// returns the addresses that must be admitted again because of it.
func (d *Dock) updateSighting(s *transport.Sighting) (restart []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.supervisors[s.Address]
	if c == nil {
		return nil
	}
	displaced, changed := d.registry.updateSighting(c.slot, s)
	if displaced != "" {
		restart = append(restart, displaced)
	}
	if changed {
		restart = append(restart, s.Address)
	}
	return restart
}

// updateGroup stores the addresses of a group and returns those that have gone.
func (d *Dock) updateGroup(group string, all []transport.Sighting) (gone []string) {
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

// supervisor returns the supervisor of an address, or nil.
func (d *Dock) supervisor(address string) *supervisor {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.supervisors[address]
}

// supervisorFor returns the supervisor of a sighting. It creates it unless the dock
// is closed. An address that thereby lost its name is added to restart.
func (d *Dock) supervisorFor(s *transport.Sighting, restart *[]string) *supervisor {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.supervisors[s.Address]
	if c == nil && !d.closed {
		var displaced string
		c, displaced = newSupervisor(d, s)
		d.supervisors[s.Address] = c
		if displaced != "" {
			*restart = append(*restart, displaced)
		}
	}
	return c
}

// restart reconnects the device at an address. See supervisor.restart.
func (d *Dock) restart(address string) (done <-chan struct{}) {
	if c := d.supervisor(address); c != nil {
		return c.restart()
	}
	return nil
}

// remove removes a supervisor whose peer is gone.
func (d *Dock) remove(c *supervisor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.supervisors, c.slot.sighting.Address)
}

// Adopt marks a device as trusted, and connects it if it was waiting for that.
func (d *Dock) Adopt(id string) error {
	address, reconnect, err := d.registry.adopt(id)
	if reconnect {
		d.restart(address) // to read all of its manifest
		return err
	}
	if c := d.supervisor(address); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.resume()
	}
	return err
}

// Release closes the connection of a device for a while, so that other programs
// can use its port. The port is free when it returns. The dock reconnects by
// itself when the time is up; with a length of 0, at once.
func (d *Dock) Release(ctx context.Context, id string, length time.Duration) error {
	addresses, err := d.registry.release(id, time.Now().Add(length))
	if err != nil {
		return err
	}
	var closing []<-chan struct{}
	for _, address := range addresses {
		if done := d.restart(address); done != nil {
			closing = append(closing, done)
		}
	}
	for _, done := range closing {
		select {
		case <-done:
		case <-ctx.Done():
			return ferrule.Errorf(ferrule.Busy, "%s is not released yet: the gateway is still closing the connection", id)
		}
	}
	return nil
}

// Forget removes a device from the store. If it is in sight, it is admitted again
// like a new device.
func (d *Dock) Forget(id string) error {
	address, err := d.registry.forget(id)
	d.restart(address)
	return err
}
