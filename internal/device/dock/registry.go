package dock

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// registry maps addresses to devices and IDs. It writes every change to the fleet and
// the store, one at a time. An ID belongs to one address: the one that the owner
// gave it to, else the one that had it first, on any node (registry_remote.go).
type registry struct {
	fleet     Fleet
	store     *Store
	overlays  Overlays
	remotes   Remote // nil if there are no other nodes
	node      string
	log       *slog.Logger
	absent    ferrule.Handler // of devices that were in sight a moment ago
	grace     time.Duration
	withdrawn map[string]bool // addresses that their owner has withdrawn

	comparisons comparisons

	mu         sync.Mutex
	pinUSB     bool
	effective  map[string]*ferrule.Manifest // by ID; for pending devices an outline
	outlines   *outlines
	slots      map[string]*slot     // by address, of peers in sight
	ids        map[string]string    // address by ID, of all devices in the fleet
	aliases    map[string]string    // address by earlier ID
	ownerNames map[string]string    // address by configured name, of peers in sight
	released   map[string]time.Time // end of the release by address and by place
	// absentPending lists pending devices that left, oldest first. Some may be back
	// or adopted by now.
	absentPending []string
}

// maxAbsentPending is the number of absent pending devices that are stored: a single
// peer that dials in can claim to be any number of devices.
const maxAbsentPending = 1000

// slot is an address in sight.
type slot struct {
	sighting *transport.Sighting
	handler  ferrule.Handler
	// device is the published record. It may be read without a lock.
	device atomic.Pointer[ferrule.Device]
}

// newRegistry publishes all stored devices as offline. It reads no manifests of pending
// devices: there may be many, and the gateway is not listening yet.
func newRegistry(p Parts, absent ferrule.Handler) *registry {
	r := &registry{
		fleet: p.Fleet, store: p.Store, overlays: p.Overlays, effective: make(map[string]*ferrule.Manifest), outlines: newOutlines(), remotes: p.Remote, node: p.Node, log: p.Log,
		absent: absent, withdrawn: make(map[string]bool), grace: p.Config.Grace, pinUSB: p.Config.PinUSB,
		slots: make(map[string]*slot), ids: make(map[string]string), aliases: make(map[string]string), ownerNames: make(map[string]string), released: p.Store.releases(),
	}
	manifests := make(map[ferrule.Kind]*ferrule.Manifest) // read once for many devices
	for _, dev := range p.Store.Devices() {
		if dev.Trust == ferrule.TrustPending {
			r.publishAbsent(dev)
			continue
		}
		m, read := manifests[dev.Kind]
		if !read {
			m, _ = p.Store.Manifest(dev.Kind) // without it only the name is known
			manifests[dev.Kind] = m
		}
		if m != nil {
			r.effective[dev.ID] = r.overlays.Apply(dev.Protocol, dev.Kind, dev.ID, m)
			dev = r.keepSensor(dev)
		}
		r.publishAbsent(dev)
	}
	r.loadAbsentPending()
	return r
}

// loadAbsentPending loads the stored pending devices.
func (r *registry) loadAbsentPending() {
	all := slices.DeleteFunc(r.store.Devices(), func(dev *ferrule.Device) bool { return dev.Trust != ferrule.TrustPending })
	slices.SortFunc(all, func(a, b *ferrule.Device) int { return a.Since.Compare(b.Since) })
	for _, dev := range all {
		r.addAbsentPending(dev.ID)
	}
}

// addAbsentPending adds a pending device that left, and drops the oldest if there
// are too many.
func (r *registry) addAbsentPending(id string) {
	r.absentPending = append(slices.DeleteFunc(r.absentPending, func(other string) bool { return other == id }), id)
	if len(r.absentPending) <= maxAbsentPending {
		return
	}
	first := r.absentPending[0]
	r.absentPending = slices.Delete(r.absentPending, 0, 1)
	dev, kept := r.store.Get(first)
	if !kept || dev.Trust != ferrule.TrustPending || dev.Trusted != nil || r.ids[first] != dev.Address || r.slots[dev.Address] != nil {
		return
	}
	r.removeID(first)
	if err := r.store.dropPending(first); err != nil {
		r.logNotStored(dev, err)
	}
}

// add adds an address that came into sight and publishes its device: as stored,
// else under the configured name, else under the address. It returns the address,
// if any, that lost its name.
func (r *registry) add(s *transport.Sighting, handler ferrule.Handler) (added *slot, displaced string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	displaced = r.claimName(s)
	added = &slot{sighting: s, handler: handler}
	r.slots[s.Address] = added
	delete(r.withdrawn, s.Address)
	switch dev, known := r.store.At(s.Address); {
	case !known:
		r.publishExpected(added)
	case s.Name == "" || s.Name == dev.ID:
		r.publish(added, withClaims(dev, s))
	default:
		r.publish(added, r.rename(withClaims(dev, s), s.Name))
	}
	return added, displaced
}

// claimName gives a configured name to the address of its sighting. It returns the
// address, if any, that lost the name.
func (r *registry) claimName(s *transport.Sighting) (displaced string) {
	if s.Name == "" {
		return ""
	}
	r.ownerNames[s.Name] = s.Address
	at, ok := r.ids[s.Name]
	if dev, kept := r.store.Get(s.Name); !ok && kept {
		at, ok = dev.Address, true
	}
	if !ok || at == s.Address {
		return ""
	}
	r.log.Info("name moved to another device", "device", s.Name)
	r.dropID(s.Name)
	return at
}

// updateSighting stores a new sighting of a known address. It reports whether the
// configuration of the device changed, so that it must be admitted again, and
// returns the address, if any, that lost its name.
func (r *registry) updateSighting(at *slot, s *transport.Sighting) (displaced string, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := at.sighting
	at.sighting = s
	if was.Title != s.Title || !maps.Equal(was.Claims, s.Claims) {
		dev := withClaims(at.device.Load(), s)
		r.publish(at, dev)
		r.storeDevice(dev)
	}
	nowSensor := s.Sensor && !was.Sensor && at.device.Load().Trust == ferrule.TrustPending
	if was.Name == s.Name && was.Adopted == s.Adopted && !nowSensor && (s.Name == "" || r.ownerNames[s.Name] == s.Address) {
		return "", false
	}
	if was.Name != s.Name && r.ownerNames[was.Name] == s.Address {
		delete(r.ownerNames, was.Name)
	}
	displaced = r.claimName(s)
	dev := at.device.Load()
	switch kept, known := r.store.At(s.Address); {
	case s.Name != "" && dev.ID != s.Name && known:
		r.publish(at, r.rename(kept, s.Name))
	case s.Name != "" && dev.ID != s.Name:
		r.publishExpected(at)
	case s.Name == "" && dev.ID == was.Name && r.ids[dev.ID] == s.Address: // the name was only configured
		r.dropID(dev.ID)
	}
	return displaced, true
}

// rename gives a stored device another ID and returns the new record, which the
// caller publishes.
func (r *registry) rename(dev *ferrule.Device, id string) *ferrule.Device {
	renamed := *dev
	renamed.ID = id
	r.removeID(dev.ID) // its manifest is read again when it is published
	r.storeDevice(&renamed)
	return &renamed
}

// withClaims returns a device with what its sighting says about it.
func withClaims(dev *ferrule.Device, s *transport.Sighting) *ferrule.Device {
	claimed := *dev
	claimed.SetClaims(s.Title, s.Claims)
	return &claimed
}

// publishExpected publishes a device that is known only by its address and its title.
func (r *registry) publishExpected(at *slot) {
	s := at.sighting
	id := s.Address
	switch {
	case s.Name != "" && r.ownerNames[s.Name] == s.Address:
		id = s.Name
	case s.Title != "":
		id = r.newID(s, "")
	}
	dev := &ferrule.Device{
		ID: id, Address: s.Address, Local: s.Local, Hub: s.Hub, Transport: s.Transport,
		State: ferrule.StateOffline, Since: time.Now(), Reason: "connecting",
	}
	dev.Trust, dev.Sensor = trustOf(s, s.Sensor, nil, nil)
	dev.SetClaims(s.Title, s.Claims)
	r.publish(at, dev)
}

// remove removes an address that went out of sight. A stored device stays in the fleet,
// unless its hub has dropped it and nobody has decided anything about it.
func (r *registry) remove(at *slot, dropped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := at.sighting
	delete(r.slots, s.Address)
	if r.ownerNames[s.Name] == s.Address {
		delete(r.ownerNames, s.Name)
	}
	dev := at.device.Load()
	switch {
	case r.ids[dev.ID] != s.Address: // another device has that ID now
	case !r.isStored(dev):
		r.removeID(dev.ID)
	case dropped && dev.Hub != "" && dev.Trust == ferrule.TrustPending && dev.Trusted == nil && !dev.Named && len(dev.Labels) == 0:
		r.removeID(dev.ID)
		if err := r.store.dropPending(dev.ID); err != nil {
			r.logNotStored(dev, err)
		}
	default:
		if s.Withdrawn {
			r.withdrawn[s.Address] = true
		}
		r.publishAbsent(dev)
		if dev.Trust == ferrule.TrustPending {
			r.addAbsentPending(dev.ID)
		}
	}
}

// isStored reports whether a device stays in the fleet when it is out of sight.
func (r *registry) isStored(dev *ferrule.Device) bool {
	kept, ok := r.store.Get(dev.ID)
	return ok && kept.Address == dev.Address
}

// admit gives a greeted device its ID and trust, decides what of it is in use, notes what
// has changed, and publishes it. Dev.Sensor says whether the peer was judged to be a sensor
// when it was opened. C is the result of prepare.
func (r *registry) admit(at *slot, dev *ferrule.Device, manifest *ferrule.Manifest, c *comparison) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := at.sighting
	kept, known := r.store.At(s.Address)
	if !known {
		kept, known = r.takeOver(s, dev, manifest)
	}
	dev.ID = r.chooseID(s, dev.Model, kept)
	dev.SetClaims(s.Title, s.Claims)
	before := r.lastKnown(dev.ID, s, kept)
	dev.Trust, dev.Sensor = trustOf(s, s.Sensor && dev.Sensor, before, kept)
	r.checkEndpoint(s, dev, before, kept)
	r.adoptKnown(dev)
	manifest, stored := r.pinSensor(s, dev, manifest, kept, before, c)
	if before != nil && before.Kind != "" {
		r.compare(dev, manifest, before)
		dev.Labels = before.Labels
	}
	if known {
		dev.Named, dev.Aliases = kept.Named, kept.Aliases
	} else if before != nil {
		dev.Aliases = before.Aliases
	}
	dev.Notes = slices.Concat(dev.Notes, r.overlays.UnknownTools(dev.Protocol, dev.Kind, dev.ID, manifest))
	if known {
		r.supersede(kept, dev)
	}
	switch dev.Trust {
	case ferrule.TrustPending:
		outline, small, note := r.outlines.add(dev, manifest)
		if r.effective[dev.ID] = outline; note != "" {
			dev.Notes = append([]string{note}, dev.Notes...)
		}
		if dev.Notes = pendingNotes(dev.Notes); small {
			stored = map[ferrule.Kind]*ferrule.Manifest{dev.Kind: manifest}
		}
	default:
		r.outlines.remove(dev.ID)
		r.effective[dev.ID] = r.overlays.Apply(dev.Protocol, dev.Kind, dev.ID, manifest)
	}
	if err := r.store.keep(dev, stored); err != nil { // before other nodes see the device and request the manifest
		r.logNotStored(dev, err)
	}
	r.publish(at, dev)
}

// offline marks a device as offline. It reports whether that is new.
func (r *registry) offline(at *slot, why error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := at.device.Load()
	reason := ferrule.Clean(why.Error(), 500)
	if was.State == ferrule.StateOffline && (was.Reason == reason || why == errStopped) {
		return false
	}
	dev := *was
	if dev.State != ferrule.StateOffline {
		dev.State, dev.Since = ferrule.StateOffline, time.Now()
	}
	dev.Reason = reason
	r.publish(at, &dev)
	r.storeDevice(&dev)
	return true
}

// adopt marks a device as trusted and returns its address. It reports whether the
// device must be connected again because its manifest was not stored.
func (r *registry) adopt(id string) (address string, reconnect bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id = r.current(id)
	if err := r.checkHeldHere(id); err != nil {
		return "", false, err
	}
	was, ok := r.store.Get(id)
	at := r.slots[r.ids[id]]
	switch {
	case !ok && at == nil:
		return "", false, ferrule.UnknownDevice(id)
	case !ok && at.sighting.Absent != "":
		return "", false, at.device.Load().OfflineError()
	case !ok:
		was = at.device.Load() // it was never opened
	}
	dev := *was
	if dev.Trust == ferrule.TrustPending && dev.Kind != "" {
		dev.Accepted, dev.AcceptedAt = dev.Kind, time.Now() // what the owner sees now
	}
	dev.Trust, dev.Sensor = ferrule.TrustAdopted, false
	trustEndpoint(&dev, at)
	if reconnect = dev.State == ferrule.StateOnline && r.manifestOf(&dev) == nil; reconnect {
		dev.State, dev.Since, dev.Reason = ferrule.StateOffline, time.Now(), "reconnecting to read its tools"
	}
	if at := r.slots[dev.Address]; at != nil {
		r.publish(at, &dev)
	} else {
		r.publishAbsent(&dev)
	}
	return dev.Address, reconnect, r.store.Keep(&dev, nil)
}

// address returns the present or last address of a device.
func (r *registry) address(id string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	address, ok := r.ids[id]
	return address, ok
}

// forget removes a device and returns its address. If it is in sight, it is
// published as a new device.
func (r *registry) forget(id string) (address string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id = r.current(id)
	if err := r.checkHeldHere(id); err != nil {
		return "", err
	}
	dev, err := r.storedDevice(id)
	if err != nil {
		return "", err
	}
	return dev.Address, r.dropID(id)
}

// storedDevice returns a stored device.
func (r *registry) storedDevice(id string) (*ferrule.Device, error) {
	if dev, ok := r.store.Get(id); ok {
		return dev, nil
	}
	if at := r.slots[r.ids[id]]; at != nil {
		return nil, at.device.Load().OfflineError()
	}
	return nil, ferrule.UnknownDevice(id)
}

// dropID removes an ID and everything stored about its device. If the device is in
// sight, it is published as a new one.
func (r *registry) dropID(id string) error {
	at := r.slots[r.ids[id]]
	r.removeID(id)
	err := r.store.Forget(id)
	if at != nil {
		r.publishExpected(at)
	}
	return err
}

// removeID removes an ID from the fleet.
func (r *registry) removeID(id string) {
	r.dropAliases(id)
	delete(r.ids, id)
	r.fleet.Remove(id)
	r.outlines.remove(id)
	delete(r.effective, id)
}

// supersede removes the previous ID of an address.
func (r *registry) supersede(was, dev *ferrule.Device) {
	if was.ID != dev.ID && r.ids[was.ID] == dev.Address {
		r.removeID(was.ID)
	}
}

// publish publishes the record of an address in sight.
func (r *registry) publish(at *slot, dev *ferrule.Device) {
	if was := at.device.Load(); was != nil {
		r.supersede(was, dev)
	}
	dev = r.localRecord(dev)
	r.ids[dev.ID] = dev.Address
	r.indexAliases(dev)
	at.device.Store(dev)
	r.fleet.Put(dev, r.manifestOf(dev), at.handler)
}

// manifestOf returns the effective manifest of a device. A device that is no longer
// pending gets the stored one in place of its outline, or none until it connects.
func (r *registry) manifestOf(dev *ferrule.Device) *ferrule.Manifest {
	if dev.Trust == ferrule.TrustPending || dev.Kind == "" {
		return r.effective[dev.ID]
	}
	if r.outlines.remove(dev.ID) {
		delete(r.effective, dev.ID)
	}
	if r.effective[dev.ID] == nil {
		if m, err := r.store.Manifest(dev.Kind); err == nil {
			r.effective[dev.ID] = r.overlays.Apply(dev.Protocol, dev.Kind, dev.ID, m)
		}
	}
	return r.effective[dev.ID]
}

// publishAbsent publishes the record of an address out of sight. Calls wait for it if it
// was in sight a moment ago.
func (r *registry) publishAbsent(dev *ferrule.Device) {
	r.ids[dev.ID] = dev.Address
	r.indexAliases(dev)
	if r.withdrawn[dev.Address] {
		r.fleet.Put(r.localRecord(dev), nil, nil)
		return
	}
	var handler ferrule.Handler
	if time.Since(dev.Since) < r.grace {
		handler = r.absent
	}
	r.fleet.Put(r.localRecord(dev), r.manifestOf(dev), handler)
}

// storeDevice stores a device that was reached before.
func (r *registry) storeDevice(dev *ferrule.Device) {
	if dev.Kind == "" {
		return
	}
	if err := r.store.Keep(dev, nil); err != nil {
		r.logNotStored(dev, err)
	}
}

func (r *registry) logNotStored(dev *ferrule.Device, err error) {
	r.log.Warn("device not stored", "device", dev.ID, "err", err)
}

// trustOf returns the trust of a device: adopted if it is configured, else the
// previous trust, else adopted as a sensor if it was judged to be one. Before is its latest
// record, and kept is that of this node. Another node's record adopts nothing unless a node
// of this tenant wrote it.
func trustOf(s *transport.Sighting, judged bool, before, kept *ferrule.Device) (trust ferrule.Trust, sensor bool) {
	switch {
	case s.Announced != nil && before != nil && before.Trusted != nil:
		return before.Trust, before.Sensor // it may wait for its owner, see checkEndpoint
	case s.Adopted:
		return ferrule.TrustAdopted, false
	case before != nil && before != kept && before.Trust == ferrule.TrustAdopted && !before.Vouched:
		return trustOf(s, judged, kept, kept)
	case before != nil && before.Trust == ferrule.TrustAdopted:
		return before.Trust, before.Sensor
	case judged:
		return ferrule.TrustAdopted, true
	}
	return ferrule.TrustPending, false
}

// compare records what has changed since the device was last seen.
func (r *registry) compare(dev *ferrule.Device, manifest *ferrule.Manifest, before *ferrule.Device) {
	dev.Changed, dev.Previous = before.Changed, before.Previous
	if before.Kind == dev.Kind {
		return
	}
	dev.Changed, dev.Previous = time.Now(), before.Kind
	if dev.Offered == "" { // else it is in the log
		r.log.Warn(fmt.Sprintf("device changed its Kind: %s, before %s", dev.Kind.Short(), before.Kind.Short()), "device", dev.ID)
	}
	if old, err := r.store.Manifest(before.Kind); err == nil {
		if note := shrunkNote(old, manifest); note != "" {
			dev.Notes = append(dev.Notes, note)
		}
	}
}

// shrunkNote returns a note if a device with the same version offers less than
// before: the list may have been cut without an error.
func shrunkNote(old, now *ferrule.Manifest) string {
	if now.Model != old.Model || now.Version != old.Version ||
		len(now.Tools) > len(old.Tools) || len(now.Pins) > len(old.Pins) ||
		len(now.Tools)+len(now.Pins) == len(old.Tools)+len(old.Pins) {
		return ""
	}
	for _, t := range now.Tools {
		if old.Tool(t.Name) == nil {
			return ""
		}
	}
	return fmt.Sprintf("the list shrank from %d tools and %d pins to %d and %d with the same version: the board may be low on memory",
		len(old.Tools), len(old.Pins), len(now.Tools), len(now.Pins))
}
