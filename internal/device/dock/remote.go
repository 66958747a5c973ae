package dock

import (
	"context"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Remote knows the devices of other nodes. It must be quick: it is called with locks
// held.
type Remote interface {
	// Known returns the device that has an ID on another node, or had it last. It
	// is online if that node holds it now. A device that this node has taken over
	// is no longer known there, even if the other node has not noticed yet.
	Known(id string) (*ferrule.Device, bool)
	// Manifest returns a manifest that another node stored. Unlike Known, it may take
	// until ctx ends.
	Manifest(ctx context.Context, kind ferrule.Kind) (*ferrule.Manifest, error)
}

// Reconsider is called when the record of an ID on other nodes has changed: one of
// them took the device or released it, or gave the name to another device. The
// dock then disconnects, connects or renames its own device, if that is
// necessary. It returns at once.
func (d *Dock) Reconsider(id string) { d.changes.add(id) }

// changedIDs is a queue of IDs to reconsider, without duplicates.
type changedIDs struct {
	signal chan struct{} // has an element if the queue is not empty

	mu  sync.Mutex
	ids map[string]bool
}

func newChangedIDs() *changedIDs {
	return &changedIDs{signal: make(chan struct{}, 1), ids: make(map[string]bool)}
}

func (q *changedIDs) add(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ids[id] = true
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (q *changedIDs) take() map[string]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := q.ids
	q.ids = make(map[string]bool)
	return ids
}

// processChanges reconsiders changed IDs until ctx ends.
func (d *Dock) processChanges(ctx context.Context) {
	for {
		select {
		case <-d.changes.signal:
		case <-ctx.Done():
			return
		}
		for id := range d.changes.take() {
			d.reconsider(id)
		}
		d.news.notify() // a call must not wait here for a device that another node has
	}
}

func (d *Dock) reconsider(id string) {
	address, ok := d.registry.address(id)
	if !ok {
		return
	}
	if c := d.supervisor(address); c != nil {
		c.reconsider()
	} else {
		d.registry.reconsider(id)
	}
}

// reconsider acts on the records of other nodes.
func (c *supervisor) reconsider() {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.dock.registry
	greeting := c.busy && c.session == nil
	lost, holder := r.remoteClaims(c.slot)
	switch {
	case c.sighting == nil || c.slot.device.Load().State == ferrule.StateReleased:
		// checked again when the release ends
	case greeting && (c.sighting.Inbound || holder == nil):
		// greet a peer that dialed in; its name is chosen then
	case holder != nil:
		c.reconnect(holder)
	case lost:
		c.reconnect(errReconnecting)
	case c.standby:
		c.resume()
	default:
		r.refreshNotes(c.slot)
	}
}

// standBy leaves the device to the node that holds it, until reconsider. Calls that
// wait for a reconnect stop waiting.
func (c *supervisor) standBy(holder error) {
	c.standby = true
	c.offline(holder)
	c.wakeCalls()
	c.dock.news.notify()
}

// wakeCalls makes waiting calls check whether a reconnect is still possible.
func (c *supervisor) wakeCalls() {
	close(c.connected)
	c.connected = make(chan struct{})
}

// newDialIn reports whether the peer dialed in and was not greeted yet. Then any
// node that still claims the device has lost it.
func (c *supervisor) newDialIn() bool {
	return c.sighting.Inbound && (c.done == nil || c.sighting.Instance != c.instance)
}
