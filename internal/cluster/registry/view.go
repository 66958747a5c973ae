package registry

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// view is a copy of the registry in memory: every record of the tenant, up to a limit,
// and which nodes are alive. It shows the devices of other nodes to the fleet.
//
// Lock order: mu before the fleet's. Changes that the fleet reports with its lock held
// go through the intake, which has its own lock.
type view struct {
	self   string
	limit  int // of records
	fleet  Fleet
	remote ferrule.Handler // calls any device of another node
	kinds  *kinds
	key    []byte // of vouchers

	mu       sync.RWMutex
	records  map[string]entry
	peers    map[string]peer
	own      map[string]*ownDevice
	dirty    map[string]bool  // own devices whose record may have to be written
	writing  map[string]plan  // records that are being written
	previous map[string]entry // the records before, while the registry is read again
	synced   bool             // records are complete
	partial  bool             // there are more records than limit
	moved    []string         // devices that the dock must reconsider
	news     chan struct{}    // signals that there are dirty records or moved devices
}

// ownDevice is a device of this node.
type ownDevice struct {
	device   *ferrule.Device // nil once it was removed
	manifest *ferrule.Manifest
	// epoch is the one under which this node holds the device, 0 if it does not. It is
	// valid from the moment that the claim is sent: no other node knows of it unless
	// the claim succeeds.
	epoch uint64
	// claim is set each time the device connects: only then may this node take it from
	// another node.
	claim bool
	// hash and revision are those of the last record that was written.
	hash, revision uint64
}

func newView(cfg engine.Config, fleet Fleet, kinds *kinds, remote ferrule.Handler, key []byte) *view {
	return &view{
		key: key, self: cfg.Node, limit: cfg.View, fleet: fleet, kinds: kinds, remote: remote,
		records: make(map[string]entry), peers: make(map[string]peer), own: make(map[string]*ownDevice),
		dirty: make(map[string]bool), writing: make(map[string]plan), news: make(chan struct{}, 1),
	}
}

// wake signals news. It never blocks.
func (v *view) wake() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

// receive applies a record from the watch; data is nil if it was removed. It does not
// parse records that this node has just written, which are most.
func (v *view) receive(id string, data []byte, revision uint64) {
	dev, news := v.compare(id, data, revision)
	if !news {
		return
	}
	e := entry{device: dev, revision: revision}
	if dev == nil {
		e = entryIn(id, data, revision)
	}
	v.update(id, e)
}

// compare reports whether a record is new, and returns its device if this node is
// writing exactly that record.
func (v *view) compare(id string, data []byte, revision uint64) (dev *ferrule.Device, news bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if revision <= v.records[id].revision {
		return nil, false
	}
	if p, busy := v.writing[id]; busy && len(data) > 0 && bytes.Equal(data, p.data) {
		return p.device, true
	}
	return nil, true
}

// update applies a record, unless it is older than the known one.
func (v *view) update(id string, e entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, known := v.records[id]
	if e.revision <= before.revision {
		return
	}
	o := v.own[id]
	if !known && o == nil && len(v.records) >= v.limit {
		v.partial = true
		return
	}
	if e.device == nil && o == nil {
		delete(v.records, id)
		delete(v.previous, id)
		v.fleet.RemoveRemote(id)
		return
	}
	v.records[id] = e
	if o != nil {
		v.updateOwn(id, o, e.device)
	} else if e.device != nil && e.device.Node == v.self && v.synced {
		v.touch(id) // this node does not have it
	}
	v.show(id)
}

// updateOwn applies the record of a device that this node has too.
func (v *view) updateOwn(id string, o *ownDevice, dev *ferrule.Device) {
	switch {
	case dev == nil:
		v.touch(id)
	case dev.Node == v.self:
		if dev.Epoch != o.epoch {
			v.touch(id)
		}
	case o.epoch > 0 && dev.Epoch >= o.epoch: // another node took it
		o.epoch, o.claim = 0, false
		v.move(id)
	default:
		v.touch(id)
		if !online(o.device) || !o.device.SameHardware(dev) {
			v.move(id)
		}
	}
}

// touch marks the record of an own device as dirty.
func (v *view) touch(id string) {
	v.dirty[id] = true
	v.wake()
}

// move has the dock reconsider a device.
func (v *view) move(id string) {
	v.moved = append(v.moved, id)
	v.wake()
}

func (v *view) takeMoved() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	moved := v.moved
	v.moved = nil
	return moved
}

// show puts a device of another node into the fleet, once its manifest is known. Nobody
// needs the manifest of a pending device, and anybody can make one up.
func (v *view) show(id string) {
	dev := v.records[id].device
	if dev == nil || dev.Node == v.self {
		v.fleet.RemoveRemote(id)
		return
	}
	var manifest *ferrule.Manifest
	if dev.Trust != ferrule.TrustPending {
		if manifest = v.kinds.manifest(dev); manifest == nil {
			v.kinds.request(dev)
			return
		}
	}
	v.fleet.PutRemote(v.remoteDevice(dev, manifest), manifest, v.remote)
}

// remoteDevice returns a device of another node as seen from here: offline if its node
// is not alive.
func (v *view) remoteDevice(dev *ferrule.Device, manifest *ferrule.Manifest) *ferrule.Device {
	out := *dev
	if manifest != nil {
		out.Model, out.Version = manifest.Model, manifest.Version
	}
	if p := v.peers[dev.Node]; dev.State == ferrule.StateOnline && !p.alive {
		out.State, out.Reason = ferrule.StateOffline, fmt.Sprintf("its node %s is offline", dev.Node)
		if p.lastSeen.After(dev.Since) {
			out.Since = p.lastSeen
		}
	}
	return &out
}

// arrived shows devices whose manifest was fetched.
func (v *view) arrived(waiting []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range waiting {
		v.show(id)
	}
}

// setNode applies the state of another node.
func (v *view) setNode(name string, p peer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.peers[name]
	v.peers[name] = p
	if before.alive == p.alive {
		return
	}
	for id, e := range v.records {
		if e.device == nil || e.device.Node != name {
			continue
		}
		v.show(id)
		if o := v.own[id]; o != nil && !online(o.device) {
			v.move(id)
		}
	}
}

// onlyNodes marks all other nodes as not alive.
func (v *view) onlyNodes(all map[string]bool) {
	v.mu.RLock()
	var gone []string
	for name, p := range v.peers {
		if p.alive && !all[name] {
			gone = append(gone, name)
		}
	}
	v.mu.RUnlock()
	for _, name := range gone {
		v.setNode(name, peer{lastSeen: time.Now()})
	}
}

func (v *view) peer(name string) (boot string, lastSeen time.Time) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	p := v.peers[name]
	return p.boot, p.lastSeen
}

// nodes lists the other nodes that are alive.
func (v *view) nodes() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var all []string
	for name, p := range v.peers {
		if p.alive {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// known returns a device that another node holds or held last.
func (v *view) known(id string) (*ferrule.Device, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, ok := v.records[id]
	if !ok {
		e = v.previous[id]
	}
	dev := e.device
	if dev == nil || dev.Node == v.self {
		return nil, false
	}
	if o := v.own[id]; o != nil && online(o.device) && (o.claim || o.epoch > 0) && o.device.SameHardware(dev) {
		return nil, false // it is here now; the record is about to be written
	}
	out := v.remoteDevice(dev, nil)
	out.Vouched = v.vouched(e)
	return out, true
}

// held returns a device that this node holds under an epoch.
func (v *view) held(id string, epoch uint64) (ferrule.Target, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	o := v.own[id]
	if o == nil || o.device == nil || o.epoch == 0 || o.epoch != epoch {
		return ferrule.Target{}, false
	}
	return ferrule.Target{Device: o.device, Manifest: o.manifest}, true
}

// begin is called before all records are read again.
func (v *view) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.previous == nil {
		v.previous = v.records
	}
	v.synced, v.partial, v.records = false, false, make(map[string]entry, len(v.previous))
}

// complete is called after all records were read: others are gone, and what this node
// knows better is written.
func (v *view) complete() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.previous {
		if _, still := v.records[id]; !still {
			v.fleet.RemoveRemote(id)
		}
	}
	v.previous, v.synced = nil, true
	inUse := make(map[kindKey]bool)
	for id, e := range v.records {
		switch {
		case e.device == nil:
		case e.device.Node == v.self:
			v.dirty[id] = true
		case e.device.Trust != ferrule.TrustPending:
			inUse[v.kinds.key(e.device)] = true
		}
	}
	v.kinds.retain(inUse)
	for id, o := range v.own {
		v.dirty[id] = true
		if !online(o.device) {
			v.moved = append(v.moved, id)
		}
	}
	v.wake()
}

// incomplete reports whether there are more devices than the view holds.
func (v *view) incomplete() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.partial
}

// withNodeState is remoteDevice for a device that is not in the view.
func (v *view) withNodeState(dev *ferrule.Device, manifest *ferrule.Manifest) *ferrule.Device {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.remoteDevice(dev, manifest)
}
