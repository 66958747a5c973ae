package dock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// first sends a call to a device that may be away for a moment: it wakes the reconnect
// and waits for it. A call waits only if nothing of it was sent. C is the supervisor of
// the device, or nil if the device is out of sight. It returns the one that was used.
func (d *Dock) first(ctx context.Context, c *supervisor, call *ferrule.Call) (*supervisor, *ferrule.Result, error) {
	var result *ferrule.Result
	var err error
	if c != nil {
		result, err = c.invoke(ctx, call)
	} else {
		err = call.Target.Device.OfflineError()
	}
	if !mayWait(err) || call.Principal.Role == ferrule.Gateway { // the gateway asks again soon
		return c, result, err
	}
	begun := time.Now()
	limit, cancel := context.WithTimeout(ctx, d.parts.Config.Wait)
	defer cancel()
	for mayWait(err) {
		back := d.await(limit, call, begun)
		if errors.Is(ctx.Err(), context.Canceled) {
			return c, nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for %s", call.Device)
		}
		if back == nil {
			return c, nil, err
		}
		c = back
		result, err = c.invoke(ctx, call)
	}
	return c, result, err
}

// mayWait reports whether a call with this error may wait for the device and be sent then.
func mayWait(err error) bool {
	return codeOf(err) == ferrule.Offline && !ferrule.AsError(err).Final
}

// serveAbsent serves a call of a device that is out of sight.
func (d *Dock) serveAbsent(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return d.handle(ctx, nil, call)
}

// await waits until the device of a call is connected, and returns its supervisor. It
// returns nil if ctx ends, or if there is no point in waiting. Begun is when the call
// began to wait.
func (d *Dock) await(ctx context.Context, call *ferrule.Call, begun time.Time) *supervisor {
	select {
	case <-time.After(linkGrace):
	case <-ctx.Done():
		return nil
	}
	for reported := false; ; {
		news := d.news.next()
		c, wait := d.wake(call.Device, begun)
		if c != nil || !wait {
			return c
		}
		if !reported {
			call.Report(ferrule.Progress{Message: fmt.Sprintf("connection to %s lost; waiting for the reconnect", call.Device)})
			reported = true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil
		}
	}
}

// wake makes the dock connect a device at once. It returns the supervisor if the device
// is connected, or else whether it may be soon.
func (d *Dock) wake(id string, begun time.Time) (connected *supervisor, wait bool) {
	address, ok := d.registry.address(id)
	if !ok {
		return nil, false
	}
	c := d.supervisor(address)
	if c == nil {
		return nil, d.registry.isBrieflyAway(id, d.parts.Config.Grace) && !d.registry.isElsewhere(id)
	}
	switch c.wake(begun, d.parts.Config.Grace) {
	case awake:
		return c, false
	case waking:
		return nil, true
	}
	return nil, false
}

// wakeState is whether a call may wait for a device.
type wakeState int

const (
	gone   wakeState = iota // no
	waking                  // it may be connected soon
	awake                   // it is connected
)

// wake connects now instead of at the end of the back-off. A device that is away for
// longer than the grace period gets one attempt for each call; before that, attempts go
// on.
func (c *supervisor) wake(begun time.Time, grace time.Duration) wakeState {
	c.mu.Lock()
	defer c.mu.Unlock()
	dev := c.slot.device.Load()
	brief := time.Since(dev.Since) < grace
	switch {
	case c.session != nil:
		return awake
	case dev.State == ferrule.StateReleased:
		return gone
	case c.closed || c.sighting == nil || c.sighting.Absent != "": // it may be plugged in again
		if !brief {
			return gone
		}
	case c.standby: // another node has it
		return gone
	case c.busy:
	case !brief && c.failed.After(begun):
		return gone
	case c.timer == nil: // it waits for its owner
		return gone
	default:
		c.stopWaiting()
		if next := c.failed.Add(c.dock.parts.Config.RetryMin); time.Now().Before(next) {
			c.waitUntil(next)
		} else {
			c.connect()
		}
	}
	return waking
}

// isBrieflyAway reports whether a device went offline within the grace period.
func (r *registry) isBrieflyAway(id string, grace time.Duration) bool {
	dev, ok := r.store.Get(id)
	if !ok {
		return false
	}
	r.mu.Lock()
	withdrawn := r.withdrawn[dev.Address]
	r.mu.Unlock()
	return !withdrawn && dev.State == ferrule.StateOffline && time.Since(dev.Since) < grace
}

// isElsewhere reports whether another node holds a device.
func (r *registry) isElsewhere(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkHeldHere(id) != nil
}

// broadcast wakes all goroutines that wait for a change.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{} // nil if nobody waits
}

// next returns a channel that is closed at the next change.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// Retry connects a device now instead of at the end of the back-off, and returns when it
// is connected, or why it is not. It does nothing to a device that is connected.
func (d *Dock) Retry(ctx context.Context, id string) error {
	address, err := d.registry.retryable(id)
	if err != nil {
		return err
	}
	begun := time.Now()
	for {
		news := d.news.next()
		c := d.supervisor(address)
		if c == nil {
			return d.registry.offlineError(id)
		}
		switch c.wake(begun, 0) {
		case awake:
			return nil
		case gone:
			return d.registry.offlineError(id)
		}
		select {
		case <-news:
		case <-ctx.Done():
			return d.registry.offlineError(id)
		}
	}
}

// retryable returns the address of a device of this node that may be connected.
func (r *registry) retryable(id string) (address string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id = r.current(id)
	if err := r.checkHeldHere(id); err != nil {
		return "", err
	}
	address, ok := r.ids[id]
	if !ok {
		return "", ferrule.UnknownDevice(id)
	}
	return address, nil
}

// offlineError returns why a device is offline.
func (r *registry) offlineError(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.slots[r.ids[id]]; at != nil {
		return at.device.Load().OfflineError()
	}
	if dev, ok := r.store.Get(id); ok {
		return dev.OfflineError()
	}
	return ferrule.UnknownDevice(id)
}
