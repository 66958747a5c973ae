package dock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// berth serves one address: it brings the device there online, keeps it so, and
// tries again when it is lost. It is in one of four states:
//
//	empty      nothing is in sight
//	greeting   a goroutine opens and greets
//	attended   a goroutine runs the session
//	waiting    a timer runs until the next greeting; or nothing does, until
//	           the owner adopts what must not be opened before, or another
//	           node lets go of what it has
//
// An empty berth is given up. A berth's mu is taken before the dock's and the
// roster's.
type berth struct {
	dock     *Dock
	slot     *slot
	lane     lane
	heard    listeners // of whoever has the lane
	watchers atomic.Pointer[[]*func(ferrule.Trace)]

	mu       sync.Mutex
	sighting *transport.Sighting // what is in sight now; nil if nothing is
	gone     error               // why nothing is in sight
	busy     bool                // greeting or attended
	served   uint64              // the instance that busy is about
	anew     error               // why what follows it begins at once; nil if it does not
	end      context.CancelFunc  // ends what busy is about
	over     chan struct{}       // closed when that has ended
	timer    *time.Timer         // runs while waiting
	wait     time.Duration       // how long the next wait is
	link     transport.Link      // that busy is about, once it is open
	session  protocol.Session    // nil unless attended
	began    time.Time           // when session did
	arrival  chan struct{}       // closed when a session begins
	standby  bool                // another node has the device
	left     bool                // the berth was given up
}

// newBerth makes a berth for what was sighted. It tells which address, if any,
// had the name of it before.
func newBerth(d *Dock, s *transport.Sighting) (b *berth, displaced string) {
	b = &berth{dock: d, lane: lane{most: d.parts.Config.Waiting}, wait: d.parts.Config.RetryMin, arrival: make(chan struct{})}
	b.slot, displaced = d.roster.enter(s, b.handle)
	return b, displaced
}

// see takes in what is in sight at the address: a sighting, or nil and why there
// is none. It is false if the berth has been given up.
func (b *berth) see(s *transport.Sighting, gone error) bool {
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
	b.wakeCalls()
	b.dock.roster.leave(b.slot)
	b.dock.vacate(b)
}

func (b *berth) stopWaiting() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// begin starts a greeting of what is in sight, unless it is to be left alone. It
// is called with mu held.
func (b *berth) begin() {
	b.standby = false
	if b.sighting.Absent != "" {
		b.offline(errors.New(b.sighting.Absent))
		return
	}
	if until, away := b.dock.roster.released(b.slot); away {
		b.waitUntil(until)
		return
	}
	if holder := b.dock.roster.consult(b.slot); holder != nil && !b.hello() {
		b.standBy(holder)
		return
	}
	if shy, dev := b.sighting.Shy, b.slot.device.Load(); shy != "" && dev.Trust == ferrule.TrustPending {
		b.offline(fmt.Errorf("%s; `ferrule adopt %s` opens it", shy, dev.ID))
		return
	}
	ctx, end := context.WithCancel(context.Background())
	s := *b.sighting
	b.busy, b.anew, b.served, b.end, b.over, b.timer = true, nil, s.Instance, end, make(chan struct{}), nil
	b.dock.greeting.Add(1)
	if !b.dock.start(func() { b.greet(ctx, s) }) {
		b.dock.greeting.Add(-1)
		end()
		b.busy = false
	}
}

// greet opens the device, finds out what it is and admits it. Then the session
// gets a goroutine of its own, with a fresh stack: there may be very many.
func (b *berth) greet(ctx context.Context, s transport.Sighting) {
	var session protocol.Session
	err := b.safely(func() (err error) {
		session, err = b.admit(ctx, s)
		return err
	})
	b.dock.greeting.Add(-1)
	if err != nil {
		b.ended(err)
		return
	}
	attend := func() { b.ended(b.safely(func() error { return session.Run(ctx) })) }
	if !b.dock.start(attend) {
		attend() // the dock is closing, and ctx ends
	}
}

// safely makes an error of a panic: a device that finds a fault of ours costs
// itself, and nobody else.
func (b *berth) safely(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the gateway failed at it: %v", r)
			b.dock.parts.Log.Error("a device made the gateway panic\n"+string(debug.Stack()), "device", b.slot.device.Load().ID, "err", err)
		}
	}()
	return fn()
}

// errAnew is why a device is offline for a moment.
var errAnew = errors.New("it is being connected anew")

// ended decides what follows the end of a greeting or a session.
func (b *berth) ended(err error) {
	b.hangUp(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(b.over) // that of now: what follows may be busy again
	b.busy = false
	why := b.why(err)
	switch {
	case b.sighting == nil:
		b.leave()
	case b.sighting.Instance != b.served:
		b.offline(why)
		b.begin()
	case b.anew != nil:
		if b.begin(); b.busy {
			b.offline(why)
		}
	default:
		b.offline(why)
		b.retry()
	}
	b.observe(transport.Frame{Way: transport.Aside, Note: "not connected: " + why.Error()})
}

// why is why the device is offline, if what was busy ended with err.
func (b *berth) why(err error) error {
	switch {
	case b.sighting == nil:
		return b.gone
	case b.sighting.Instance != b.served:
		return errAnew
	}
	return cmp.Or(b.anew, err, errAnew)
}

// hangUp lets go of the link, which may take a while and holds nobody up.
func (b *berth) hangUp(err error) {
	b.mu.Lock()
	b.end()
	link := b.link
	b.link = nil
	if b.session != nil {
		b.offline(b.why(err))
		b.session = nil
		b.arrival = make(chan struct{})
		if time.Since(b.began) > b.wait {
			b.wait = b.dock.parts.Config.RetryMin
		}
	}
	b.mu.Unlock()
	if link != nil {
		link.Close() // if it is open still
	}
}

// retry starts the timer. Waits double, and vary, so that devices which were
// lost together do not all come back at the same moment.
func (b *berth) retry() {
	wait := b.wait/2 + rand.N(b.wait/2+1)
	b.wait = min(2*b.wait, b.dock.parts.Config.RetryMax)
	b.waitUntil(time.Now().Add(wait))
}

// waitUntil has the next greeting begin at a time.
func (b *berth) waitUntil(t time.Time) {
	b.timer = time.AfterFunc(time.Until(t), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.timer != nil && b.sighting != nil {
			b.timer = nil
			b.begin()
		}
	})
}

// offline tells everyone that the device cannot be reached.
func (b *berth) offline(why error) {
	if b.dock.roster.offline(b.slot, why) {
		b.dock.parts.Log.Info("device offline", "device", b.slot.device.Load().ID, "err", why)
	}
}

// restart begins anew with what is in sight, because of what was decided about
// it: its name, or that it is to be left alone. Over is closed when what was
// before has ended; it is nil if there was nothing.
func (b *berth) restart() (over <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.again(errAnew)
}

// again is restart with a reason, and with mu held.
func (b *berth) again(why error) (over <-chan struct{}) {
	b.wait = b.dock.parts.Config.RetryMin
	if b.busy {
		b.anew = why
		b.end()
		return b.over
	}
	b.resume()
	return nil
}

// resume ends a wait. It is called with mu held.
func (b *berth) resume() {
	if !b.busy && b.sighting != nil {
		b.stopWaiting()
		b.begin()
	}
}

// open opens a link to what was sighted, and shows it to whoever traces.
func (b *berth) open(ctx context.Context, s transport.Sighting) (transport.Link, error) {
	link, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	if t, ok := link.(transport.Tapped); ok {
		t.Observe(b.observe)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.link = link
	return link, nil
}

// speak finds the dialect that the device speaks.
func (b *berth) speak(ctx context.Context, s transport.Sighting) (protocol.Session, *ferrule.Manifest, string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.dock.parts.Config.Greet)
	defer cancel()
	var errs []error
	for _, name := range s.Protocols {
		d := b.dock.parts.Protocols[name]
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
		if !errors.Is(err, protocol.ErrNotMine) {
			break
		}
	}
	return nil, nil, "", errors.Join(errs...)
}
