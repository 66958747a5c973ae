package lease

import (
	"context"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// How long to wait for the call that ends a lease, and between two.
const (
	endTimeout = 5 * time.Second
	minPause   = 100 * time.Millisecond
	maxPause   = 30 * time.Second
	// farewell is how long Run tries to end leases when the gateway stops.
	farewell = 3 * time.Second
	// nodeCheck is how often it is checked whether the nodes of callers are alive.
	nodeCheck = time.Second
)

// principal is the gateway itself when it ends a lease.
var principal = ferrule.Principal{Role: ferrule.Gateway, Name: "lease"}

// Run ends leases until ctx ends. It then ends all that are left, as far as their devices
// can be reached: the sessions of their callers end with this gateway.
func (k *Keeper) Run(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	k.mu.Lock()
	k.running = running
	for key, l := range k.leases {
		if l.why != "" {
			k.end(key, l)
		}
	}
	k.mu.Unlock()
	if k.parts.Shared != nil {
		k.work.Go(func() { k.outbox.Run(running, k.parts.Shared, k.parts.Log) })
		k.parts.Shared.Watch(k.heard)
	}
	tick := time.NewTicker(nodeCheck)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			k.checkNodes()
			k.shareUnheard()
		case <-ctx.Done():
		}
	}
	k.endAll()
	stop()
	k.work.Wait()
	return nil
}

// endAll makes all leases due, and waits until those of reachable devices have ended.
func (k *Keeper) endAll() {
	k.mu.Lock()
	for key, l := range k.leases {
		k.due(key, l, "the gateway is stopping")
	}
	k.mu.Unlock()
	for late := time.After(farewell); ; {
		k.mu.Lock()
		open := false
		for _, l := range k.leases {
			open = open || k.online(&l.record)
		}
		changed := k.changed
		if !open {
			k.running = nil
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			k.mu.Lock()
			k.running = nil
			k.mu.Unlock()
			return
		}
	}
}

// due makes a lease due, and ends it. It is called with mu held.
func (k *Keeper) due(key string, l *lease, why string) {
	if l.why == "" {
		l.why = why
		k.wake()
	}
	k.end(key, l)
}

// end starts to end a lease, unless that has started. It is called with mu held.
func (k *Keeper) end(key string, l *lease) {
	if l.ending || k.running == nil {
		return
	}
	l.ending = true
	ctx := k.running
	k.work.Go(func() { k.endUntilConfirmed(ctx, key) })
}

// endUntilConfirmed calls what ends a lease until the device has confirmed it, or until
// the lease is gone or renewed.
func (k *Keeper) endUntilConfirmed(ctx context.Context, key string) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		r, why, renewals, ok := k.next(ctx, key)
		if !ok {
			return
		}
		err := k.undo(ctx, r)
		if err == nil {
			k.confirmed(key, renewals)
			k.parts.Log.Info("lease ended: "+why, "device", r.Device, "tool", r.Undo)
			return
		}
		k.parts.Log.Error("lease not ended, the output may still be on; trying again: "+why, "device", r.Device, "tool", r.Undo, "err", err)
		k.mu.Lock()
		if l := k.leases[key]; l != nil {
			l.failed = err
			if code := ferrule.AsError(err).Code; code == ferrule.Refused || code == ferrule.Failed {
				l.refused++
			}
			k.wake()
		}
		k.mu.Unlock()
		if k.rest(ctx, r.Device, pause) {
			pause = minPause
		}
	}
}

// rest waits for the next attempt. It returns true at once if the device reconnects.
func (k *Keeper) rest(ctx context.Context, device string, pause time.Duration) bool {
	k.mu.Lock()
	before := k.devices[device]
	k.mu.Unlock()
	for late := time.After(pause); ; {
		k.mu.Lock()
		dev, changed := k.devices[device], k.changed
		k.mu.Unlock()
		if dev != before {
			return true
		}
		select {
		case <-changed:
		case <-late:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// next waits until the device of a due lease is online, and returns what to call. It
// returns false if there is nothing to do any more.
func (k *Keeper) next(ctx context.Context, key string) (r record, why string, renewals int, ok bool) {
	for {
		k.mu.Lock()
		l := k.leases[key]
		if l == nil || l.why == "" || ctx.Err() != nil {
			if l != nil {
				l.ending = false
			}
			k.mu.Unlock()
			return record{}, "", 0, false
		}
		r, why, renewals = l.record, l.why, l.renewals
		online, changed := k.online(&r), k.changed
		k.mu.Unlock()
		if online {
			return r, why, renewals, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// undo makes the call that ends a lease.
func (k *Keeper) undo(ctx context.Context, r record) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, err := k.parts.Handle(ctx, &ferrule.Call{
		Principal: principal, Urgent: true, Device: r.Device, Tool: r.Undo, Args: slices.Clone(r.Args), Timeout: ferrule.Duration(endTimeout),
	})
	return err
}

// confirmed forgets a lease whose end the device has confirmed. A lease that was renewed
// meanwhile stays, and one with a call under way: that may run after the end.
func (k *Keeper) confirmed(key string, renewals int) {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	l := k.leases[key]
	if l == nil {
		k.mu.Unlock()
		return
	}
	if l.inFlight > 0 || l.renewals != renewals {
		l.ending = false
		if l.inFlight == 0 && l.why != "" { // otherwise left ends it
			k.end(key, l)
		}
		k.mu.Unlock()
		return
	}
	r := l.record // does not change while writing is held
	k.mu.Unlock()
	if k.parts.SwitchedOff != nil && r.Output != "" { // before other changes go on
		k.parts.SwitchedOff(r.Output)
	}
	k.mu.Lock()
	// model: lease_end
	k.drop(key, l)
	k.mu.Unlock()
	k.erase(key, &r)
}

// Put implements ferrule.DeviceWatcher for the devices of this node.
func (k *Keeper) Put(dev *ferrule.Device, _ *ferrule.Manifest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(dev.ID)
	if dev.State == ferrule.StateOnline && dev.Trust != ferrule.TrustPending {
		for _, id := range append([]string{dev.ID}, dev.Aliases...) {
			k.devices[id] = dev
		}
		k.reportLost()
		for key, r := range k.foreign {
			k.takeOver(key, r)
		}
	}
	k.wake()
}

// reportLost reports leases whose device has lost its ID to other hardware: they wait until
// it has that ID again. It is called with mu held.
func (k *Keeper) reportLost() {
	for _, l := range k.leases {
		if dev := k.devices[l.Device]; dev != nil && dev.Address != l.Address && !l.lost {
			l.lost = true
			k.parts.Log.Error("lease not ended: other hardware has the name of its device now, and the output of the earlier hardware may still be on",
				"device", l.Device, "tool", l.Undo, "address", l.Address)
		}
	}
}

// Remove implements ferrule.DeviceWatcher.
func (k *Keeper) Remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(id)
	k.wake()
}

// forget removes a device under all its IDs. It is called with mu held.
func (k *Keeper) forget(id string) {
	if dev := k.devices[id]; dev != nil && dev.ID == id {
		for _, alias := range dev.Aliases {
			delete(k.devices, alias)
		}
	}
	delete(k.devices, id)
}

// Count returns how many leases are open, and how many of them are due.
func (k *Keeper) Count() (open, due int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.leases {
		if l.why != "" {
			due++
		}
	}
	return len(k.leases), due
}
