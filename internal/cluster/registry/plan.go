package registry

import (
	"encoding/json"
	"hash/maphash"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// settle applies changes of own devices, and returns their events.
func (v *view) settle(from *intake) (events []ferrule.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range from.take() {
		if c.said != nil {
			events = append(events, *c.said)
			continue
		}
		o := v.own[c.id]
		if o == nil {
			o = &ownDevice{}
			v.own[c.id] = o
		}
		events = append(events, changeEvents(o.device, c)...)
		if connected(o.device, c.device) {
			o.claim = true
		}
		o.device, o.manifest = c.device, c.manifest
		v.dirty[c.id] = true
	}
	return events
}

func online(dev *ferrule.Device) bool { return dev != nil && dev.State == ferrule.StateOnline }

// connected reports whether a device has connected or reconnected.
func connected(before, now *ferrule.Device) bool {
	return online(now) && (!online(before) || !before.Since.Equal(now.Since))
}

// plan is a planned write.
type plan struct {
	write
	device *ferrule.Device // as it will be in the registry; nil to remove it
	hash   uint64
}

var seed = maphash.MakeSeed()

// plans returns the writes of up to limit dirty records. It plans nothing before the
// registry was read, and no record that is being written: its outcome decides.
func (v *view) plans(limit int) []plan {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.synced {
		return nil
	}
	var all []plan
	for id := range v.dirty {
		if len(all) == limit {
			break
		}
		if _, busy := v.writing[id]; busy {
			continue
		}
		delete(v.dirty, id)
		if p, ok := v.plan(id); ok {
			all = append(all, p)
			v.writing[id] = p
		}
	}
	return all
}

// waiting counts the own records that are not written yet.
func (v *view) waiting(from *intake) int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return from.length() + len(v.dirty) + len(v.writing)
}

// plan decides what to write for a device, if anything.
func (v *view) plan(id string) (plan, bool) {
	o, now := v.own[id], v.records[id]
	r := now.device
	theirs := r != nil && r.Node != v.self
	switch {
	case o == nil:
		if !online(r) || theirs {
			return plan{}, false
		}
		gone := *r
		gone.Vouched = v.vouched(now) // anybody may have written it in this node's name
		gone.State, gone.Since, gone.Reason = ferrule.StateOffline, time.Now(), "no longer known to its node"
		return v.record(&ownDevice{}, id, &gone, gone.Epoch, now.revision)
	case o.device == nil:
		if r == nil || theirs {
			delete(v.own, id)
			return plan{}, false
		}
		return plan{write: write{id: id, revision: now.revision}}, true
	case o.device.Kind == "":
		return plan{}, false // it was never reached
	case r != nil && !r.SameHardware(o.device): // the name belongs to other hardware
		if o.epoch, o.claim = 0, true; !theirs {
			break // the name is this node's, until another node takes it
		}
		return plan{}, false
	}
	epoch := o.epoch
	switch {
	case online(o.device) && (r == nil || o.epoch == 0 || r.Epoch != o.epoch):
		if theirs && !o.claim && o.epoch <= r.Epoch {
			return plan{}, false // another node took it
		}
		epoch = max(o.epoch, epochOf(r)+1) // a claim that failed keeps its epoch
	case !online(o.device) && theirs:
		return plan{}, false
	case !online(o.device):
		epoch = max(o.epoch, epochOf(r))
	}
	return v.record(o, id, o.device, epoch, now.revision)
}

func epochOf(dev *ferrule.Device) uint64 {
	if dev == nil {
		return 0
	}
	return dev.Epoch
}

// record plans to write a device under an epoch, unless the record is already so.
func (v *view) record(o *ownDevice, id string, dev *ferrule.Device, epoch, revision uint64) (plan, bool) {
	r := recordOf(dev, epoch)
	r.Node = v.self
	if o.device != nil || dev.Vouched {
		r.Voucher = v.voucher(r.device(id))
	}
	data, err := json.Marshal(&r)
	if err != nil || len(data) > maxRecord {
		return plan{}, false // no node could read it
	}
	hash := maphash.Bytes(seed, data)
	if hash == o.hash && revision == o.revision {
		return plan{}, false
	}
	if online(dev) {
		o.epoch = epoch
	}
	written := *dev
	written.Vouched = false
	written.Node, written.Epoch = v.self, epoch
	return plan{write{id, data, revision}, &written, hash}, true
}

// written applies the outcome of a write. The record of a failed write stays dirty.
func (v *view) written(p plan, out outcome) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.writing, p.id)
	o := v.own[p.id]
	if out.err != nil {
		if o != nil {
			o.hash = 0
		}
		v.dirty[p.id] = true
		return
	}
	if o != nil {
		o.hash, o.revision = p.hash, out.revision
		if online(p.device) && o.epoch == p.device.Epoch {
			o.claim = false
		}
		if p.device == nil && o.device == nil {
			delete(v.own, p.id)
		}
	}
	if now := v.records[p.id]; out.revision > now.revision {
		v.records[p.id] = entry{device: p.device, revision: out.revision}
		v.show(p.id)
	}
}

// drop gives up a write for good.
func (v *view) drop(p plan) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.writing, p.id)
}
