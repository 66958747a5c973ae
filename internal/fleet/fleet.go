// Package fleet holds every device and the route to it, on this node or another.
//
//	dock    --Put---------> own      what this node holds, or held last
//	cluster --PutRemote---> remote   what other nodes hold
//	        --RecordEvent-> notifications: what devices last reported unasked
//	                          |
//	                          | current: the record that counts
//	                          +--> DeviceWatcher   catalog, poller, control socket
//	pipeline --Target---------+--> device, manifest and handler:
//	                               the device's lane, or the route to the other node
//
// Finding a device takes the same time whether there is one or a million.
package fleet

import (
	"slices"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Record is what is known about one device. All of it is shared and read only; a
// change is a new Record.
type Record struct {
	Device *ferrule.Device
	// Manifest is the effective manifest; nil if the device was never reached.
	Manifest *ferrule.Manifest
	// Handler leads to the device; nil if it cannot be reached.
	Handler ferrule.Handler
}

// Finder looks for a device that is not in the fleet. It is called concurrently
// and without locks. It may use the network and must return in reasonable time.
type Finder func(id string) (Record, bool)

// Fleet holds the devices that a node knows. It is safe for concurrent use.
type Fleet struct {
	find          Finder
	notifications *notifications

	mu          sync.RWMutex
	devices     map[string]entry
	aliases     map[string]string  // ID by earlier ID
	builtin     map[string]*Record // the gateway's own tools
	watchers    []ferrule.DeviceWatcher
	ownWatchers []ferrule.DeviceWatcher
}

// New returns an empty Fleet. If find is not nil, it is asked for unknown devices.
func New(find Finder) *Fleet {
	if find == nil {
		find = func(string) (Record, bool) { return Record{}, false }
	}
	return &Fleet{find: find, notifications: newNotifications(), devices: make(map[string]entry), aliases: make(map[string]string), builtin: make(map[string]*Record)}
}

// Put adds or replaces a device of this node. The handler is nil if the device
// cannot be reached.
func (f *Fleet) Put(dev *ferrule.Device, m *ferrule.Manifest, handler ferrule.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.devices[dev.ID]
	e.own = &Record{dev, m, handler}
	f.set(dev.ID, e)
	for _, w := range f.ownWatchers {
		w.Put(dev, m)
	}
}

// Remove removes a device of this node. The record of other nodes stays.
func (f *Fleet) Remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.devices[id]
	if e.own == nil {
		return
	}
	e.own = nil
	f.set(id, e)
	for _, w := range f.ownWatchers {
		w.Remove(id)
	}
}

// PutRemote adds or replaces a device as other nodes know it.
func (f *Fleet) PutRemote(dev *ferrule.Device, m *ferrule.Manifest, handler ferrule.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.devices[dev.ID]
	e.remote = &Record{dev, m, handler}
	f.set(dev.ID, e)
}

// RemoveRemote removes a device that no other node knows any longer.
func (f *Fleet) RemoveRemote(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.devices[id]
	e.remote = nil
	f.set(id, e)
}

// set stores the records of an ID, and notifies watchers if the current one
// changed. It is called with mu held.
func (f *Fleet) set(id string, e entry) {
	before, now := f.devices[id].current(), e.current()
	if now == nil {
		delete(f.devices, id)
		f.notifications.forget(id)
	} else {
		f.devices[id] = e
	}
	if now == before {
		return
	}
	f.setAliases(id, before, now)
	for _, w := range f.watchers {
		if now == nil {
			w.Remove(id)
		} else {
			w.Put(now.Device, now.Manifest)
		}
	}
}

// WatchDevices calls a watcher with all devices and then with every change, until
// stop is called. The gateway's own tools are included.
func (f *Fleet) WatchDevices(w ferrule.DeviceWatcher) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.builtin {
		w.Put(r.Device, r.Manifest)
	}
	for _, e := range f.devices {
		r := e.current()
		w.Put(r.Device, r.Manifest)
	}
	return f.watch(&f.watchers, w)
}

// WatchOwn is WatchDevices for the devices of this node only, as this node knows
// them, without the gateway's own tools.
func (f *Fleet) WatchOwn(w ferrule.DeviceWatcher) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.devices {
		if e.own != nil {
			w.Put(e.own.Device, e.own.Manifest)
		}
	}
	return f.watch(&f.ownWatchers, w)
}

// watch adds a watcher to one of the lists. It is called with mu held.
func (f *Fleet) watch(list *[]ferrule.DeviceWatcher, w ferrule.DeviceWatcher) (stop func()) {
	*list = append(*list, w)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		*list = slices.DeleteFunc(*list, func(other ferrule.DeviceWatcher) bool { return other == w })
	}
}

// PutBuiltin adds the gateway's own tools. They are called like those of a device
// but are not listed as one.
func (f *Fleet) PutBuiltin(dev *ferrule.Device, m *ferrule.Manifest, handler ferrule.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.builtin[dev.ID] = &Record{dev, m, handler}
	for _, w := range f.watchers {
		w.Put(dev, m)
	}
}

// Lookup returns a device, by its ID or an earlier one, and its effective manifest. The manifest is nil if the
// device was never reached.
func (f *Fleet) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	r, _, ok := f.record(id)
	return r.Device, r.Manifest, ok
}

// Target returns a device, by its ID or an earlier one, its effective manifest and the
// handler that leads to it, for a call.
func (f *Fleet) Target(id string) (ferrule.Target, bool) {
	r, remote, ok := f.record(id)
	return ferrule.Target{Device: r.Device, Manifest: r.Manifest, Handler: r.Handler, Remote: remote}, ok
}

// Own is Target for the devices that this node holds and for the gateway's own tools. A
// call from another node goes there and never on to a third one.
func (f *Fleet) Own(id string) (ferrule.Target, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r := f.devices[id].own
	if r == nil {
		r = f.builtin[id]
	}
	if r == nil {
		r = f.devices[f.aliases[id]].own
	}
	if r == nil {
		return ferrule.Target{}, false
	}
	return ferrule.Target{Device: r.Device, Manifest: r.Manifest, Handler: r.Handler}, true
}

// RenamedElsewhere returns the device of another node that had an ID earlier. It does not
// ask the Finder.
func (f *Fleet) RenamedElsewhere(id string) (*ferrule.Device, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	e := f.devices[f.aliases[id]]
	if e.remote == nil || e.own != nil {
		return nil, false
	}
	return e.remote.Device, true
}

// Devices returns all devices, sorted by ID.
func (f *Fleet) Devices() []*ferrule.Device {
	f.mu.RLock()
	all := make([]*ferrule.Device, 0, len(f.devices))
	for _, e := range f.devices {
		all = append(all, e.current().Device)
	}
	f.mu.RUnlock()
	slices.SortFunc(all, func(a, b *ferrule.Device) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// EachOwn calls fn with every device of this node, in no order. It is called with
// the lock held: it must be quick and must not call back.
func (f *Fleet) EachOwn(fn func(dev *ferrule.Device)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, e := range f.devices {
		if e.own != nil {
			fn(e.own.Device)
		}
	}
}

// setAliases updates the earlier IDs of a device. It is called with mu held.
func (f *Fleet) setAliases(id string, before, now *Record) {
	if before != nil {
		for _, alias := range before.Device.Aliases {
			if f.aliases[alias] == id {
				delete(f.aliases, alias)
			}
		}
	}
	if now != nil {
		for _, alias := range now.Device.Aliases {
			f.aliases[alias] = id
		}
	}
}

// record returns the current record of an ID, else of the device that had the ID earlier.
// It asks the Finder if there is none. It reports whether another node holds the device.
func (f *Fleet) record(id string) (r Record, remote, ok bool) {
	f.mu.RLock()
	e := f.devices[id]
	known := e.current()
	if known == nil {
		known = f.builtin[id]
	}
	if known == nil {
		e = f.devices[f.aliases[id]]
		known = e.current()
	}
	f.mu.RUnlock()
	if known == nil {
		r, ok = f.find(id)
		return r, true, ok
	}
	return *known, known == e.remote, true
}
