package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// view is what a node knows of the registry: every record of its tenant, up to a
// bound, and which nodes live. What other nodes hold it shows to the fleet.
//
// Its mu is taken before the fleet's: what the fleet tells of this node's own
// devices goes by way of the intake, which has a lock of its own.
type view struct {
	self  string
	most  int
	fleet Fleet
	way   ferrule.Handler // to any device of another node
	kinds *kinds

	mu      sync.RWMutex
	records map[string]entry
	peers   map[string]peer
	own     map[string]*holding
	dirty   map[string]bool     // own devices whose record may have to be written
	writing map[string]proposal // records that are being written
	before  map[string]entry    // records of before, while the registry tells all anew
	synced  bool                // records are those of the registry
	partial bool                // there are more than may be kept
	// news tells that there are dirty records or moved devices: those that the
	// dock has to think about anew.
	news  chan struct{}
	moved []string
}

// holding is a device of this node.
type holding struct {
	device *ferrule.Device // nil once it was removed
	laid   *ferrule.Manifest
	// epoch is under which this node holds the device; 0 if it does not. It
	// counts from the moment that the claim is sent: nobody else knows of it
	// unless it succeeds.
	epoch uint64
	// claim is set by each hello of the device: only then may it be taken from
	// another node.
	claim bool
	// wrote is the hash of what was last written, and at its revision.
	wrote, at uint64
}

func newView(cfg Config, fleet Fleet, kinds *kinds, way ferrule.Handler) *view {
	return &view{
		self: cfg.Node, most: cfg.View, fleet: fleet, kinds: kinds, way: way,
		records: make(map[string]entry), peers: make(map[string]peer), own: make(map[string]*holding),
		dirty: make(map[string]bool), writing: make(map[string]proposal), news: make(chan struct{}, 1),
	}
}

// wake has dirty records and moved devices looked at. It never blocks.
func (v *view) wake() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

// told takes in what the registry tells of a record; data is nil if there is none any
// more. Most of what a node is told it has just written itself, and need not read.
func (v *view) told(id string, data []byte, revision uint64) {
	dev, news := v.echo(id, data, revision)
	if !news {
		return
	}
	if dev == nil {
		dev = deviceIn(id, data)
	}
	v.update(id, entry{dev, revision})
}

// echo tells whether a record is news, and the device in it if this node is writing
// just that.
func (v *view) echo(id string, data []byte, revision uint64) (dev *ferrule.Device, news bool) {
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

// update takes in a record of the registry.
func (v *view) update(id string, e entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.take(id, e)
}

func (v *view) take(id string, e entry) {
	before, known := v.records[id]
	if e.revision <= before.revision {
		return
	}
	h := v.own[id]
	if !known && h == nil && len(v.records) >= v.most {
		v.partial = true
		return
	}
	if e.device == nil && h == nil {
		delete(v.records, id)
		delete(v.before, id)
		v.fleet.RemoveRemote(id)
		return
	}
	v.records[id] = e
	if h != nil {
		v.concerns(id, h, e.device)
	} else if e.device != nil && e.device.Node == v.self && v.synced {
		v.touch(id) // this node does not know of it
	}
	v.show(id)
}

// concerns tells of what the registry says about a device that this node has, too.
func (v *view) concerns(id string, h *holding, dev *ferrule.Device) {
	switch {
	case dev == nil:
		v.touch(id)
	case dev.Node == v.self:
		if dev.Epoch != h.epoch {
			v.touch(id)
		}
	case h.epoch > 0 && dev.Epoch >= h.epoch: // it was taken
		h.epoch, h.claim = 0, false
		v.move(id)
	default:
		v.touch(id)
		if !online(h.device) || !h.device.SameHardware(dev) {
			v.move(id)
		}
	}
}

// touch has the record of an own device looked at.
func (v *view) touch(id string) {
	v.dirty[id] = true
	v.wake()
}

// move has the dock think about a device anew.
func (v *view) move(id string) {
	v.moved = append(v.moved, id)
	v.wake()
}

// takeMoved returns the devices that the dock has to think about.
func (v *view) takeMoved() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	moved := v.moved
	v.moved = nil
	return moved
}

// show tells the fleet of a device of another node, once it is known what the
// device says of itself.
func (v *view) show(id string) {
	dev := v.records[id].device
	if dev == nil || dev.Node == v.self {
		v.fleet.RemoveRemote(id)
		return
	}
	laid := v.kinds.laid(dev)
	if laid == nil {
		v.kinds.want(dev)
		return
	}
	v.fleet.PutRemote(v.seen(dev, laid), laid, v.way)
}

// seen is a device of another node as it is seen from here: without its node it
// cannot be reached.
func (v *view) seen(dev *ferrule.Device, laid *ferrule.Manifest) *ferrule.Device {
	out := *dev
	if laid != nil {
		out.Model, out.Version = laid.Model, laid.Version
	}
	if p := v.peers[dev.Node]; dev.State == ferrule.StateOnline && !p.alive {
		out.State, out.Since = ferrule.StateOffline, later(p.heard, dev.Since)
		out.Reason = fmt.Sprintf("its node %s is not there", dev.Node)
	}
	return &out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// arrived tells that what devices of a Kind say of themselves is known now.
func (v *view) arrived(waiting []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range waiting {
		v.show(id)
	}
}

// node takes in what the registry says of another node.
func (v *view) node(name string, p peer) {
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
		if h := v.own[id]; h != nil && !online(h.device) {
			v.move(id)
		}
	}
}

// onlyNodes tells that there are no other nodes than these.
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
		v.node(name, peer{heard: time.Now()})
	}
}

// boot tells which run of a node is there; it is empty if none is.
func (v *view) boot(name string) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.peers[name].boot
}

// heard is when a node last was known to live.
func (v *view) heard(name string) time.Time {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.peers[name].heard
}

// nodes lists the other nodes that live.
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

// known returns a device as another node has it, or had it last.
func (v *view) known(id string) (*ferrule.Device, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, told := v.records[id]
	if !told {
		e = v.before[id]
	}
	dev := e.device
	if dev == nil || dev.Node == v.self {
		return nil, false
	}
	if h := v.own[id]; h != nil && online(h.device) && (h.claim || h.epoch > 0) && h.device.SameHardware(dev) {
		return nil, false // it is here now, and the registry is about to hear of it
	}
	return v.seen(dev, nil), true
}

// holds returns a device that this node holds under an epoch.
func (v *view) holds(id string, epoch uint64) (holding, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	h := v.own[id]
	if h == nil || h.device == nil || h.epoch == 0 || h.epoch != epoch {
		return holding{}, false
	}
	return *h, true
}

// begin is called before the registry tells of all its records, from the first on.
func (v *view) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.before == nil {
		v.before = v.records
	}
	v.synced, v.partial, v.records = false, false, make(map[string]entry, len(v.before))
}

// complete is called when it has: what it did not tell of is gone, and what this
// node knows better is written.
func (v *view) complete() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.before {
		if _, still := v.records[id]; !still {
			v.fleet.RemoveRemote(id)
		}
	}
	v.before, v.synced = nil, true
	inUse := make(map[kindKey]bool)
	for id, e := range v.records {
		switch {
		case e.device == nil:
		case e.device.Node == v.self:
			v.dirty[id] = true
		default:
			inUse[v.kinds.key(e.device)] = true
		}
	}
	v.kinds.tidy(inUse)
	for id, h := range v.own {
		v.dirty[id] = true
		if !online(h.device) {
			v.moved = append(v.moved, id)
		}
	}
	v.wake()
}

// incomplete tells whether there may be devices that are not in view.
func (v *view) incomplete() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.partial
}

// seenFrom is seen, for a device that is not in view.
func (v *view) seenFrom(dev *ferrule.Device, laid *ferrule.Manifest) *ferrule.Device {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.seen(dev, laid)
}
