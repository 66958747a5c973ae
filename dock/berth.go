package dock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/dialect"
	"github.com/ferrulehq/ferrule/wire"
)

// berth serves one address: it brings the device there online, keeps it so, and
// tries again when it is lost. It is in one of four states:
//
//	empty      nothing is in sight
//	greeting   a goroutine opens and greets
//	attended   a goroutine runs the session
//	waiting    a timer runs until the next greeting
//
// An empty berth is given up. Locks are taken in the order Dock.naming,
// berth.mu, Dock.mu.
type berth struct {
	dock     *Dock
	address  string
	lane     lane
	watchers atomic.Pointer[[]*func(ferrule.Trace)]

	mu       sync.Mutex
	sighting *wire.Sighting     // what is in sight now; nil if nothing is
	gone     error              // why nothing is in sight
	busy     bool               // greeting or attended
	served   uint64             // the instance that busy is about
	end      context.CancelFunc // ends what busy is about
	timer    *time.Timer        // runs while waiting
	wait     time.Duration      // how long the next wait is
	device   *ferrule.Device    // as the fleet knows it; nil if it does not
	session  dialect.Session    // nil unless attended
	arrival  chan struct{}      // closed when a session begins
	left     bool               // the berth was given up
}

// newBerth makes a berth for what was sighted, and shows people that a device is
// expected before it has been reached: as it is remembered, else under its name
// if no other device has that, else under its address.
func newBerth(d *Dock, s *wire.Sighting) *berth {
	b := &berth{
		dock: d, address: s.Address, lane: lane{most: d.Config.Waiting},
		wait: d.Config.RetryMin, arrival: make(chan struct{}),
	}
	if dev, ok := d.Memory.At(s.Address); ok && (s.Name == "" || s.Name == dev.ID) {
		b.device = dev
		return b
	}
	id := cmp.Or(s.Name, s.Address)
	if _, taken := d.Memory.Get(id); taken {
		id = s.Address
	}
	b.device = &ferrule.Device{
		ID: id, Address: s.Address, Medium: s.Medium, Trust: trust(s, nil),
		State: ferrule.StateOffline, Since: time.Now(), Reason: "it is being connected to",
	}
	d.Fleet.Put(b.device, nil, nil)
	return b
}

// see takes in what is in sight at the address: a sighting, or nil and why there
// is none. It is false if the berth has been given up.
func (b *berth) see(s *wire.Sighting, gone error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left {
		return false
	}
	b.sighting, b.gone = s, gone
	switch {
	case b.busy:
		if s == nil || s.Instance != b.served {
			b.end() // what follows is decided when it has ended
		}
	case s == nil:
		b.stopWaiting()
		b.leave()
	case b.timer == nil || s.Instance != b.served:
		b.stopWaiting()
		b.begin()
	}
	return true
}

// leave gives up the berth: nothing is in sight. It is called with mu held.
func (b *berth) leave() {
	b.offline(b.gone)
	b.left = true
	b.dock.release(b)
	switch dev := b.device; {
	case dev == nil:
	case dev.Kind == "":
		b.dock.Fleet.Remove(dev.ID)
	default:
		b.dock.Fleet.Put(dev, b.dock.kinds.of(dev.ID), nil)
	}
}

func (b *berth) stopWaiting() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// begin starts a greeting of what is in sight. It is called with mu held.
func (b *berth) begin() {
	ctx, end := context.WithCancel(context.Background())
	s := *b.sighting
	b.busy, b.served, b.end, b.timer = true, s.Instance, end, nil
	if !b.dock.start(func() { b.greet(ctx, s) }) {
		end()
		b.busy = false
	}
}

// greet opens the device, finds out what it is and admits it. Then the session
// gets a goroutine of its own, with a fresh stack: there may be very many.
func (b *berth) greet(ctx context.Context, s wire.Sighting) {
	session, err := b.admit(ctx, s)
	if err != nil {
		b.ended(err)
		return
	}
	attend := func() { b.ended(session.Run(ctx)) }
	if !b.dock.start(attend) {
		attend() // the dock is closing, and ctx ends
	}
}

// ended decides what follows the end of a greeting or a session.
func (b *berth) ended(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
	b.busy = false
	if b.session != nil {
		b.session = nil
		b.arrival = make(chan struct{})
		if b.device != nil && time.Since(b.device.Since) > b.wait {
			b.wait = b.dock.Config.RetryMin
		}
	}
	switch {
	case b.sighting == nil:
		b.leave()
	case b.sighting.Instance != b.served:
		b.offline(errors.New("it was connected anew"))
		b.begin()
	default:
		if err == nil {
			err = errors.New("it is being connected anew")
		}
		b.offline(err)
		b.retry()
	}
}

// retry starts the timer. Waits double, and vary, so that devices which were
// lost together do not all come back at the same moment.
func (b *berth) retry() {
	wait := b.wait/2 + rand.N(b.wait/2+1)
	b.wait = min(2*b.wait, b.dock.Config.RetryMax)
	b.timer = time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.timer != nil && b.sighting != nil {
			b.begin()
		}
	})
}

// offline tells everyone that the device cannot be reached. It is called with mu
// held.
func (b *berth) offline(why error) {
	if b.device == nil {
		return
	}
	reason := ferrule.Clean(why.Error(), 500)
	if b.device.State == ferrule.StateOffline && (b.device.Reason == reason || why == errStopped) {
		return
	}
	dev := *b.device
	if dev.State == ferrule.StateOnline {
		dev.State, dev.Since = ferrule.StateOffline, time.Now()
	}
	dev.Reason = reason
	b.dock.Log.Info("device offline", "device", dev.ID, "err", reason)
	b.publish(&dev, nil)
}

// publish makes dev the device's record. It is called with mu held.
func (b *berth) publish(dev *ferrule.Device, manifest *ferrule.Manifest) {
	b.device = dev
	b.dock.Fleet.Put(dev, b.dock.kinds.of(dev.ID), b.handle)
	if dev.Kind == "" {
		return // nothing is known of it that is worth remembering
	}
	if err := b.dock.Memory.Keep(dev, manifest); err != nil {
		b.dock.Log.Warn("a device will not be remembered as it is", "device", dev.ID, "err", err)
	}
}

// adopt trusts the device.
func (b *berth) adopt() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.device == nil {
		return errors.New("the device has just been forgotten")
	}
	dev := *b.device
	dev.Trust = ferrule.TrustAdopted
	b.publish(&dev, nil)
	return nil
}

// forget drops what is known of the device, and begins again if it is in sight.
func (b *berth) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.device = nil
	b.wait = b.dock.Config.RetryMin
	switch {
	case b.busy:
		b.end()
	case b.sighting != nil:
		b.stopWaiting()
		b.begin()
	}
}

// open opens a link to what was sighted, and shows it to whoever traces.
func (b *berth) open(ctx context.Context, s wire.Sighting) (wire.Link, error) {
	link, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	if t, ok := link.(wire.Tapped); ok {
		t.Observe(b.observe)
	}
	return link, nil
}

// speak finds the dialect that the device speaks.
func (b *berth) speak(ctx context.Context, s wire.Sighting) (dialect.Session, *ferrule.Manifest, string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.dock.Config.Greet)
	defer cancel()
	var errs []error
	for _, name := range s.Dialects {
		d := b.dock.Dialects[name]
		if d == nil {
			errs = append(errs, fmt.Errorf("there is no dialect %q", name))
			continue
		}
		link, err := b.open(ctx, s)
		if err != nil {
			return nil, nil, "", err
		}
		session, manifest, err := d.Greet(ctx, link)
		if err == nil {
			return session, manifest, name, nil
		}
		link.Close()
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
		if !errors.Is(err, dialect.ErrNotMine) {
			break
		}
	}
	return nil, nil, "", errors.Join(errs...)
}
