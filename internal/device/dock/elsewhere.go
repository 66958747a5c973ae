package dock

import (
	"context"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Elsewhere knows devices as other nodes do. It must be quick: it is asked with
// locks held.
type Remote interface {
	// Known returns the device that has an ID on another node, or had it last. It
	// is online if that node holds it now. What this node has taken since is not
	// known elsewhere, even before the other node has heard of it.
	Known(id string) (*ferrule.Device, bool)
}

// Reconsider tells that other nodes know something new of an ID: one of them has
// taken the device, or has let go of it, or the name is another device's. What is
// here lets go, begins, or is admitted under another name; if nothing of it
// matters here, nothing is done. It returns at once.
func (d *Dock) Reconsider(id string) { d.news.add(id) }

// news is the IDs that are to be reconsidered, each once.
type news struct {
	some chan struct{} // holds something if there are any

	mu  sync.Mutex
	ids map[string]bool
}

func newNews() *news { return &news{some: make(chan struct{}, 1), ids: make(map[string]bool)} }

func (n *news) add(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ids[id] = true
	select {
	case n.some <- struct{}{}:
	default:
	}
}

// take returns what there is, and begins anew.
func (n *news) take() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids := n.ids
	n.ids = make(map[string]bool)
	return ids
}

// hear acts on news until ctx ends.
func (d *Dock) hear(ctx context.Context) {
	for {
		select {
		case <-d.news.some:
		case <-ctx.Done():
			return
		}
		for id := range d.news.take() {
			d.reconsider(id)
		}
	}
}

func (d *Dock) reconsider(id string) {
	address, ok := d.roster.address(id)
	if !ok {
		return
	}
	if b := d.berth(address); b != nil {
		b.reconsider()
	} else {
		d.roster.reconsider(id)
	}
}

// reconsider compares what is done here with what other nodes know by now.
func (b *berth) reconsider() {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.dock.roster
	greeting := b.busy && b.session == nil
	lost, holder := r.rival(b.slot)
	switch {
	case b.sighting == nil || b.slot.device.Load().State == ferrule.StateReleased:
		// this is asked again when it is taken back
	case greeting && (b.sighting.DialledIn || holder == nil):
		// a peer that has come by itself is heard, and the name is chosen then
	case holder != nil:
		b.again(holder)
	case lost:
		b.again(errAnew)
	case b.standby:
		b.resume()
	default:
		r.renote(b.slot)
	}
}

// standBy leaves the device to the node that has it, until that is reconsidered.
// Calls that wait for the link to come back wait no longer.
func (b *berth) standBy(holder error) {
	b.standby = true
	b.offline(holder)
	b.wakeCalls()
}

// wakeCalls has the calls that wait for the link look whether it can still come back.
func (b *berth) wakeCalls() {
	close(b.arrival)
	b.arrival = make(chan struct{})
}

// hello tells that what is in sight came by itself and has not been answered yet:
// whoever has the device, has lost it.
func (b *berth) hello() bool {
	return b.sighting.DialledIn && (b.over == nil || b.sighting.Instance != b.served)
}
