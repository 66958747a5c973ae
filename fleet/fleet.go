// Package fleet holds every device and the way to it.
//
//	dock ──Put──▶ Registry   what devices there are, and what they offer
//	         ├──▶ ways       how to reach those that are here
//	         └──▶ Follower   whoever keeps a view of them
//	pipeline ──Lookup──▶ device and manifest
//	         ──Handle──▶ the device's lane
//
// Finding one device costs the same whether there is one or a million.
package fleet

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule"
)

// Record is what the registry knows of one device. Both are shared and read
// only; a change is a new Record.
type Record struct {
	Device *ferrule.Device
	// Manifest is the laid manifest; nil for a device that was never reached.
	Manifest *ferrule.Manifest
}

// Registry keeps the records of devices by ID. It is safe for use by many
// goroutines.
type Registry interface {
	Get(id string) (Record, bool)
	// Set stores a record; a nil one removes the device.
	Set(id string, r *Record)
	// All calls yield with every record, in no order, until it returns false.
	All(yield func(Record) bool)
}

// Fleet is the devices of a node.
type Fleet struct {
	registry Registry

	mu        sync.RWMutex
	ways      map[string]ferrule.Handler
	own       map[string]Record
	followers []ferrule.Follower
}

// New makes a Fleet on a registry.
func New(registry Registry) *Fleet {
	return &Fleet{registry: registry, ways: make(map[string]ferrule.Handler), own: make(map[string]Record)}
}

// Put adds a device, or says something new about it. The way may be nil: the
// device is known and cannot be reached from here.
func (f *Fleet) Put(dev *ferrule.Device, m *ferrule.Manifest, way ferrule.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registry.Set(dev.ID, &Record{dev, m})
	if way == nil {
		delete(f.ways, dev.ID)
	} else {
		f.ways[dev.ID] = way
	}
	for _, follower := range f.followers {
		follower.Put(dev, m)
	}
}

// Remove takes a device out.
func (f *Fleet) Remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registry.Set(id, nil)
	delete(f.ways, id)
	for _, follower := range f.followers {
		follower.Remove(id)
	}
}

// Follow tells a follower of all that there is, and from then on of what changes,
// until stop is called.
func (f *Fleet) Follow(follower ferrule.Follower) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.own {
		follower.Put(r.Device, r.Manifest)
	}
	for r := range f.registry.All {
		follower.Put(r.Device, r.Manifest)
	}
	f.followers = append(f.followers, follower)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.followers = slices.DeleteFunc(f.followers, func(other ferrule.Follower) bool { return other == follower })
	}
}

// Own adds what the gateway itself offers: it is called like any device, and
// does not stand in the list of them.
func (f *Fleet) Own(dev *ferrule.Device, m *ferrule.Manifest, way ferrule.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own[dev.ID] = Record{dev, m}
	f.ways[dev.ID] = way
	for _, follower := range f.followers {
		follower.Put(dev, m)
	}
}

// Lookup returns a device and its laid manifest. The manifest is nil if the
// device was never reached.
func (f *Fleet) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	r, ok := f.registry.Get(id)
	if !ok {
		f.mu.RLock()
		defer f.mu.RUnlock()
		r, ok = f.own[id]
	}
	return r.Device, r.Manifest, ok
}

// Devices lists every device by ID.
func (f *Fleet) Devices() []*ferrule.Device {
	var all []*ferrule.Device
	for r := range f.registry.All {
		all = append(all, r.Device)
	}
	slices.SortFunc(all, func(a, b *ferrule.Device) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Handle is the end of the road: it has the device do what a resolved call asks
// for.
func (f *Fleet) Handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	f.mu.RLock()
	way := f.ways[call.Device]
	f.mu.RUnlock()
	if way == nil {
		return nil, call.Target.Device.OfflineError()
	}
	return way(ctx, call)
}
