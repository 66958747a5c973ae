// Package fleet holds every device and the way to it, here or on another node.
//
//	dock ──Put───────────▶ own        what this node holds, or held last
//	bus  ──PutRemote──▶ elsewhere  what other nodes say of theirs
//	     ──Hear──────────▶ words      what devices said last by themselves
//	                        │ one of the two is seen
//	                        ├──▶ Follower  whoever keeps a view of them
//	pipeline ──Lookup───────┼──▶ device and manifest
//	         ──Handle───────┴──▶ the device's lane, or the way to the other node
//
// Finding one device costs the same whether there is one or a million.
package fleet

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Record is what is known of one device. All of it is shared and read only; a
// change is a new Record.
type Record struct {
	Device *ferrule.Device
	// Manifest is the laid manifest; nil for a device that was never reached.
	Manifest *ferrule.Manifest
	// Way has the device do what a call asks for; nil if it cannot be reached.
	Handler ferrule.Handler
}

// Finder looks for a device that the fleet was not told of. It is called by many
// goroutines, with no lock held: it may ask over the network, and is to give up in
// time.
type Finder func(id string) (Record, bool)

// Fleet is the devices that a node knows. It is safe for use by many goroutines.
type Fleet struct {
	find  Finder
	words *words

	mu           sync.RWMutex
	devices      map[string]entry
	tools        map[string]*Record // what the gateway itself offers
	followers    []ferrule.DeviceWatcher
	ownFollowers []ferrule.DeviceWatcher
}

// New makes a Fleet. Find may be nil: there is nothing but what the fleet is told
// of.
func New(find Finder) *Fleet {
	if find == nil {
		find = func(string) (Record, bool) { return Record{}, false }
	}
	return &Fleet{find: find, words: newWords(), devices: make(map[string]entry), tools: make(map[string]*Record)}
}

// Put adds a device of this node, or says something new about it. The way may be
// nil: the device is known and cannot be reached.
func (f *Fleet) Put(dev *ferrule.Device, m *ferrule.Manifest, way ferrule.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.devices[dev.ID]
	e.own = &Record{dev, m, way}
	f.set(dev.ID, e)
	for _, follower := range f.ownFollowers {
		follower.Put(dev, m)
	}
}

// Remove takes a device of this node out. What other nodes know of it stays.
func (f *Fleet) Remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.devices[id]
	if e.own == nil {
		return
	}
	e.own = nil
	f.set(id, e)
	for _, follower := range f.ownFollowers {
		follower.Remove(id)
	}
}

// PutRemote adds a device as other nodes know it, or says something new about
// it.
func (f *Fleet) PutRemote(dev *ferrule.Device, m *ferrule.Manifest, way ferrule.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.devices[dev.ID]
	e.elsewhere = &Record{dev, m, way}
	f.set(dev.ID, e)
}

// RemoveRemote tells that no other node knows a device any more.
func (f *Fleet) RemoveRemote(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.devices[id]
	e.elsewhere = nil
	f.set(id, e)
}

// set stores what is known of an ID, and tells the followers if something else is
// seen of it now.
func (f *Fleet) set(id string, e entry) {
	before, now := f.devices[id].seen(), e.seen()
	if now == nil {
		delete(f.devices, id)
		f.words.forget(id)
	} else {
		f.devices[id] = e
	}
	if now == before {
		return
	}
	for _, follower := range f.followers {
		if now == nil {
			follower.Remove(id)
		} else {
			follower.Put(now.Device, now.Manifest)
		}
	}
}

// Follow tells a follower of all that there is, and from then on of what changes,
// until stop is called.
func (f *Fleet) WatchDevices(follower ferrule.DeviceWatcher) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.tools {
		follower.Put(r.Device, r.Manifest)
	}
	for _, e := range f.devices {
		r := e.seen()
		follower.Put(r.Device, r.Manifest)
	}
	return f.follow(&f.followers, follower)
}

// WatchOwn is Follow for the devices of this node alone: as it knows them, whatever
// other nodes say, and without what the gateway itself offers.
func (f *Fleet) WatchOwn(follower ferrule.DeviceWatcher) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.devices {
		if e.own != nil {
			follower.Put(e.own.Device, e.own.Manifest)
		}
	}
	return f.follow(&f.ownFollowers, follower)
}

// follow adds a follower to one of the lists. It is called with mu held.
func (f *Fleet) follow(list *[]ferrule.DeviceWatcher, follower ferrule.DeviceWatcher) (stop func()) {
	*list = append(*list, follower)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		*list = slices.DeleteFunc(*list, func(other ferrule.DeviceWatcher) bool { return other == follower })
	}
}

// Own adds what the gateway itself offers: it is called like any device, and
// does not stand in the list of them.
func (f *Fleet) PutBuiltin(dev *ferrule.Device, m *ferrule.Manifest, way ferrule.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tools[dev.ID] = &Record{dev, m, way}
	for _, follower := range f.followers {
		follower.Put(dev, m)
	}
}

// Lookup returns a device and its laid manifest. The manifest is nil if the
// device was never reached.
func (f *Fleet) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	r, ok := f.record(id)
	return r.Device, r.Manifest, ok
}

// Devices lists every device by ID.
func (f *Fleet) Devices() []*ferrule.Device {
	f.mu.RLock()
	all := make([]*ferrule.Device, 0, len(f.devices))
	for _, e := range f.devices {
		all = append(all, e.seen().Device)
	}
	f.mu.RUnlock()
	slices.SortFunc(all, func(a, b *ferrule.Device) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// EachOwn calls fn with every device of this node, as it knows them, in no order. It must
// be quick, and must not ask the fleet anything meanwhile.
func (f *Fleet) EachOwn(fn func(dev *ferrule.Device)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, e := range f.devices {
		if e.own != nil {
			fn(e.own.Device)
		}
	}
}

// HandleOwn has a device of this node do what a call asks for that another node has
// resolved. It never goes on to a third.
func (f *Fleet) HandleOwn(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	f.mu.RLock()
	own := f.devices[call.Device].own
	f.mu.RUnlock()
	if own == nil || own.Handler == nil {
		return nil, call.Target.Device.OfflineError()
	}
	return own.Handler(ctx, call)
}

// Handle is the end of the road: it has the device do what a resolved call asks
// for.
func (f *Fleet) Handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	r, _ := f.record(call.Device)
	if r.Handler == nil {
		return nil, call.Target.Device.OfflineError()
	}
	return r.Handler(ctx, call)
}

// record returns what is seen of an ID, and looks further if nothing is.
func (f *Fleet) record(id string) (Record, bool) {
	f.mu.RLock()
	r := f.devices[id].seen()
	if r == nil {
		r = f.tools[id]
	}
	f.mu.RUnlock()
	if r == nil {
		return f.find(id)
	}
	return *r, true
}
