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

// supervisor keeps the device at one address connected. It is in one of four
// states:
//
//	gone       the peer is not in sight; the supervisor closes
//	greeting   a goroutine opens the link and greets
//	connected  a goroutine runs the session
//	waiting    a timer runs until the next attempt, or nothing runs until the
//	           owner adopts the device or another node releases it
//
// Lock order: supervisor.mu, then Dock.mu and registry.mu.
type supervisor struct {
	dock          *Dock
	slot          *slot
	lane          lane
	subscriptions subscriptions // guarded by the lane
	watchers      atomic.Pointer[[]*func(ferrule.Trace)]

	mu            sync.Mutex
	sighting      *transport.Sighting // nil if the peer is gone
	goneReason    error               // why the peer is gone
	busy          bool                // greeting or connected
	instance      uint64              // of the sighting in use
	restartReason error               // reconnect at once for this reason; may be nil
	cancel        context.CancelFunc  // ends the greeting or the session
	done          chan struct{}       // closed when it has ended
	timer         *time.Timer         // set while waiting
	failed        time.Time           // when it last began to wait
	wait          time.Duration       // next back-off
	link          transport.Link      // nil unless open
	session       protocol.Session    // nil unless connected
	began         time.Time           // when session began
	connected     chan struct{}       // closed when a session begins
	standby       bool                // another node holds the device, or it is absent
	checking      bool                // whether it is still where it was trusted
	closed        bool                // no longer in use
}

// newSupervisor returns a supervisor for a sighting, and the address, if any, that
// lost its name to it.
func newSupervisor(d *Dock, s *transport.Sighting) (c *supervisor, displaced string) {
	c = &supervisor{dock: d, lane: lane{limit: d.parts.Config.Waiting}, wait: d.parts.Config.RetryMin, connected: make(chan struct{})}
	c.lane.crowded = c.yield
	c.slot, displaced = d.registry.add(s, c.handle)
	return c, displaced
}

// setSighting sets the present sighting, or nil and the reason. It returns false if
// the supervisor is closed.
func (c *supervisor) setSighting(s *transport.Sighting, gone error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.sighting, c.goneReason = s, gone
	switch {
	case c.busy:
		if s == nil || s.Instance != c.instance && !c.staysWhereTrusted(s) {
			c.cancel() // sessionEnded decides how to continue
		}
	case s == nil:
		c.stopWaiting()
		c.close()
	case c.timer == nil || s.Instance != c.instance:
		c.stopWaiting()
		c.connect()
	}
	return true
}

// close ends the supervisor after the peer is gone. It is called with mu held.
func (c *supervisor) close() {
	c.offline(c.goneReason)
	c.closed = true
	c.wakeCalls()
	c.dock.registry.remove(c.slot, c.goneReason != errStopped)
	c.dock.remove(c)
	c.dock.news.notify()
}

func (c *supervisor) stopWaiting() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// connect starts a greeting, unless there is a reason to wait. It is called with mu
// held.
func (c *supervisor) connect() {
	c.standby = false
	if c.sighting.Absent != "" {
		c.dock.registry.syncRemote(c.slot) // it may be on another node now
		c.standBy(errors.New(c.sighting.Absent))
		return
	}
	if until, released := c.dock.registry.applyRelease(c.slot); released {
		c.waitUntil(until)
		return
	}
	if holder := c.dock.registry.syncRemote(c.slot); holder != nil && !c.newDialIn() {
		c.standBy(holder)
		return
	}
	if shy, dev := c.sighting.AdoptFirst, c.slot.device.Load(); shy != "" && dev.Trust == ferrule.TrustPending && dev.Trusted == nil {
		c.offline(fmt.Errorf("%s; to connect it, run `ferrule adopt %s`", shy, dev.ID))
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := *c.sighting
	c.busy, c.restartReason, c.instance, c.cancel, c.done, c.timer = true, nil, s.Instance, cancel, make(chan struct{}), nil
	c.dock.greeting.Add(1)
	if !c.dock.start(func() { c.greet(ctx, s) }) {
		c.dock.greeted()
		cancel()
		c.busy = false
	}
}

// greet connects and admits the device. The session then runs in a new goroutine,
// which has a small stack: there may be very many.
func (c *supervisor) greet(ctx context.Context, s transport.Sighting) {
	var session protocol.Session
	err := c.safely(func() (err error) {
		session, err = c.admit(ctx, s)
		return err
	})
	if err != nil {
		c.sessionEnded(err) // which may begin another greeting
		c.dock.greeted()
		return
	}
	c.dock.greeted()
	run := func() { c.sessionEnded(c.safely(func() error { return session.Run(ctx) })) }
	if !c.dock.start(run) {
		run() // the dock is closing and ctx ends
	}
}

// safely turns a panic into an error, so that a bug that one device triggers does
// not affect others.
func (c *supervisor) safely(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: %v", r)
			c.dock.parts.Log.Error("device caused a panic\n"+string(debug.Stack()), "device", c.slot.device.Load().ID, "err", err)
		}
	}()
	return fn()
}

var errReconnecting = errors.New("reconnecting")

// sessionEnded decides how to continue after a greeting or a session.
func (c *supervisor) sessionEnded(err error) {
	c.disconnect(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(c.done) // the present one; connect may replace it
	c.busy = false
	why := c.why(err)
	switch {
	case c.sighting == nil:
		c.close()
	case c.sighting.Instance != c.instance:
		c.offline(why)
		c.connect()
	case c.restartReason != nil:
		if c.connect(); c.busy {
			c.offline(why)
		}
	default:
		c.offline(why)
		c.retry()
	}
	c.observe(transport.Frame{Direction: transport.Remark, Note: "disconnected: " + why.Error()})
}

// why returns the reason that the device is offline after an end with err.
func (c *supervisor) why(err error) error {
	switch {
	case c.sighting == nil:
		return c.goneReason
	case c.sighting.Absent != "":
		return errors.New(c.sighting.Absent)
	case c.sighting.Instance != c.instance:
		return errReconnecting
	}
	return cmp.Or(c.restartReason, err, errReconnecting)
}

// disconnect closes the link. This may take a while, so it is done without the lock.
func (c *supervisor) disconnect(err error) {
	c.mu.Lock()
	c.cancel()
	link := c.link
	c.link = nil
	if c.session != nil {
		c.offline(c.why(err))
		c.session = nil
		c.connected = make(chan struct{})
		if time.Since(c.began) > c.wait {
			c.wait = c.dock.parts.Config.RetryMin
		}
	}
	c.mu.Unlock()
	if link != nil {
		link.Close() // no-op if it is closed
	}
}

// retry starts the back-off timer. Waits double and have jitter, so that devices
// which were lost together do not reconnect at the same moment.
func (c *supervisor) retry() {
	wait := c.wait/2 + rand.N(c.wait/2+1)
	c.wait = min(2*c.wait, c.dock.parts.Config.RetryMax)
	c.failed = time.Now()
	c.waitUntil(c.failed.Add(wait))
	c.dock.news.notify()
}

// waitUntil schedules the next connect.
func (c *supervisor) waitUntil(t time.Time) {
	c.timer = time.AfterFunc(time.Until(t), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer != nil && c.sighting != nil {
			c.timer = nil
			c.connect()
		}
	})
}

// offline publishes that the device is offline.
func (c *supervisor) offline(why error) {
	if c.dock.registry.offline(c.slot, why) {
		c.dock.parts.Log.Info("device offline", "device", c.slot.device.Load().ID, "err", why)
	}
}

// restart reconnects because of a decision about the device: a new name, a release.
// The returned channel is closed when the present session has ended; it is nil if
// there is none.
func (c *supervisor) restart() (done <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reconnect(errReconnecting)
}

// reconnect is restart with a reason. It is called with mu held.
func (c *supervisor) reconnect(why error) (done <-chan struct{}) {
	c.wait = c.dock.parts.Config.RetryMin
	if c.busy {
		c.restartReason = why
		c.cancel()
		return c.done
	}
	c.resume()
	return nil
}

// resume connects now if the supervisor is waiting. It is called with mu held.
func (c *supervisor) resume() {
	if !c.busy && c.sighting != nil {
		c.stopWaiting()
		c.connect()
	}
}

// open opens a link and connects it to traces.
func (c *supervisor) open(ctx context.Context, s transport.Sighting) (transport.Link, error) {
	link, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	if t, ok := link.(transport.Traceable); ok {
		t.Observe(c.observe)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = link
	return link, nil
}

// negotiate tries the protocols of the sighting in order and greets the device.
func (c *supervisor) negotiate(ctx context.Context, s transport.Sighting) (protocol.Session, *ferrule.Manifest, string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.dock.parts.Config.Greet)
	defer cancel()
	var errs []error
	for _, name := range s.Protocols {
		d := c.dock.parts.Protocols[name]
		if d == nil {
			errs = append(errs, fmt.Errorf("unknown protocol %q", name))
			continue
		}
		link, err := c.open(ctx, s)
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
