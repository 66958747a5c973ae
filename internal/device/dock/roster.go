package dock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// roster knows which device is at which address and under which ID, and tells
// fleet and memory of every change, one change at a time. An ID belongs to one
// address: to the one that the owner gave it to, else to the one that had it
// first, on any node (others.go).
type roster struct {
	fleet    Fleet
	memory   *Store
	overlays Overlays
	others   Remote // nil if there are none
	node     string
	log      *slog.Logger

	mu        sync.Mutex
	effective map[string]*ferrule.Manifest // by ID
	slots     map[string]*slot             // by address, of what is in sight
	ids       map[string]string            // ID to address, of every device in the fleet
	given     map[string]string            // the owner's names to addresses, of what is in sight
	away      map[string]time.Time         // by address and by place, until when it is released
	// strangers are the IDs of held devices that are remembered, who left first in front.
	// Some may be in sight again, or adopted.
	strangers []string
}

// maxStrangers is how many held devices are remembered while they are out of sight:
// somebody who can dial in can be any number of devices.
const maxStrangers = 1000

// slot is an address that is in sight.
type slot struct {
	sighting *transport.Sighting
	way      ferrule.Handler
	// device is what the fleet knows of it. It is read without a lock.
	device atomic.Pointer[ferrule.Device]
}

// newRoster puts what is remembered into the fleet, as offline.
func newRoster(p Parts) *roster {
	r := &roster{
		fleet: p.Fleet, memory: p.Store, overlays: p.Overlays, effective: make(map[string]*ferrule.Manifest), others: p.Remote, node: p.Node, log: p.Log,
		slots: make(map[string]*slot), ids: make(map[string]string), given: make(map[string]string), away: make(map[string]time.Time),
	}
	said := make(map[ferrule.Kind]*ferrule.Manifest) // by many devices, read once
	for _, dev := range p.Store.Devices() {
		m, read := said[dev.Kind]
		if !read {
			m, _ = p.Store.Manifest(dev.Kind) // without it the device is known by name only
			said[dev.Kind] = m
		}
		if m != nil {
			r.effective[dev.ID] = r.overlays.Apply(dev.Protocol, dev.Kind, dev.ID, m)
		}
		r.list(dev)
	}
	r.recallStrangers()
	return r
}

// recallStrangers takes in the held devices that are remembered.
func (r *roster) recallStrangers() {
	all := slices.DeleteFunc(r.memory.Devices(), func(dev *ferrule.Device) bool { return dev.Trust != ferrule.TrustPending })
	slices.SortFunc(all, func(a, b *ferrule.Device) int { return a.Since.Compare(b.Since) })
	for _, dev := range all {
		r.strangerLeft(dev.ID)
	}
}

// strangerLeft notes that a held device has gone out of sight, and forgets who left
// first if there are too many.
func (r *roster) strangerLeft(id string) {
	r.strangers = append(slices.DeleteFunc(r.strangers, func(other string) bool { return other == id }), id)
	if len(r.strangers) <= maxStrangers {
		return
	}
	first := r.strangers[0]
	r.strangers = slices.Delete(r.strangers, 0, 1)
	dev, kept := r.memory.Get(first)
	if !kept || dev.Trust != ferrule.TrustPending || r.ids[first] != dev.Address || r.slots[dev.Address] != nil {
		return
	}
	r.unlist(first)
	if err := r.memory.fade(first); err != nil {
		r.notKept(dev, err)
	}
}

// enter takes in an address that has come into sight, and shows people that a
// device is expected there: as it is remembered, else under the owner's name,
// else under its address. It tells which address, if any, had that name before.
func (r *roster) enter(s *transport.Sighting, way ferrule.Handler) (entered *slot, displaced string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	displaced = r.claim(s)
	entered = &slot{sighting: s, way: way}
	r.slots[s.Address] = entered
	switch dev, known := r.memory.At(s.Address); {
	case !known:
		r.expect(entered)
	case s.Name == "" || s.Name == dev.ID:
		r.publish(entered, dev)
	default:
		r.publish(entered, r.rename(dev, s.Name))
	}
	return entered, displaced
}

// claim gives the owner's name for what was sighted to its address. It tells
// which address, if any, had that name before.
func (r *roster) claim(s *transport.Sighting) (displaced string) {
	if s.Name == "" {
		return ""
	}
	r.given[s.Name] = s.Address
	at, ok := r.ids[s.Name]
	if dev, kept := r.memory.Get(s.Name); !ok && kept {
		at, ok = dev.Address, true
	}
	if !ok || at == s.Address {
		return ""
	}
	r.log.Info("the name now belongs to another device", "device", s.Name)
	r.evict(s.Name)
	return at
}

// resight takes in what is sighted at an address that was in sight before. It
// tells whether the owner has decided something else about it, so that it has to
// be admitted anew, and which address, if any, had its name before.
func (r *roster) resight(at *slot, s *transport.Sighting) (displaced string, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := at.sighting
	at.sighting = s
	if was.Name == s.Name && was.Adopted == s.Adopted && (s.Name == "" || r.given[s.Name] == s.Address) {
		return "", false
	}
	if was.Name != s.Name && r.given[was.Name] == s.Address {
		delete(r.given, was.Name)
	}
	displaced = r.claim(s)
	dev := at.device.Load()
	switch kept, known := r.memory.At(s.Address); {
	case s.Name != "" && dev.ID != s.Name && known:
		r.publish(at, r.rename(kept, s.Name))
	case s.Name != "" && dev.ID != s.Name:
		r.expect(at)
	case s.Name == "" && dev.ID == was.Name && r.ids[dev.ID] == s.Address: // only its owner called it so
		r.evict(dev.ID)
	}
	return displaced, true
}

// rename gives a device that is remembered another name, and returns it as it is
// then, to be published.
func (r *roster) rename(dev *ferrule.Device, id string) *ferrule.Device {
	renamed := *dev
	renamed.ID = id
	r.unlist(dev.ID)
	if m, err := r.memory.Manifest(dev.Kind); err == nil {
		r.effective[id] = r.overlays.Apply(dev.Protocol, dev.Kind, id, m)
	}
	r.keep(&renamed)
	return &renamed
}

// expect publishes a device of which nothing is known but where it should be.
func (r *roster) expect(at *slot) {
	s := at.sighting
	id := s.Address
	if r.given[s.Name] == s.Address {
		id = s.Name
	}
	r.publish(at, &ferrule.Device{
		ID: id, Address: s.Address, Local: s.Local, Transport: s.Transport, Trust: trust(s, nil),
		State: ferrule.StateOffline, Since: time.Now(), Reason: "it is being connected to",
	})
}

// leave takes out an address that has gone out of sight. What is remembered of
// it stays in the fleet.
func (r *roster) leave(at *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := at.sighting
	delete(r.slots, s.Address)
	if r.given[s.Name] == s.Address {
		delete(r.given, s.Name)
	}
	dev := at.device.Load()
	switch {
	case r.ids[dev.ID] != s.Address: // another has that ID by now
	case !r.remembers(dev):
		r.unlist(dev.ID)
	default:
		r.list(dev)
		if dev.Trust == ferrule.TrustPending {
			r.strangerLeft(dev.ID)
		}
	}
}

// remembers tells whether a device stays when it is out of sight.
func (r *roster) remembers(dev *ferrule.Device) bool {
	kept, ok := r.memory.Get(dev.ID)
	return ok && kept.Address == dev.Address
}

// admit gives a device that was greeted its ID and its trust, notes what has
// changed about it, and publishes it. Shared is its laid manifest, unless
// something is laid on it alone.
func (r *roster) admit(at *slot, dev *ferrule.Device, manifest, shared *ferrule.Manifest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := at.sighting
	kept, known := r.memory.At(s.Address)
	dev.ID = r.name(s, dev.Model, kept)
	before := r.before(dev.ID, s, kept)
	dev.Trust = trust(s, before)
	if before != nil && before.Kind != "" {
		r.compare(dev, manifest, before)
		dev.Labels = before.Labels
	}
	dev.Notes = slices.Concat(dev.Notes, r.overlays.UnknownTools(dev.Protocol, dev.Kind, dev.ID, manifest))
	if known {
		r.supersede(kept, dev)
	}
	if r.overlays.MatchesDevice(dev.ID) {
		shared = r.overlays.Apply(dev.Protocol, dev.Kind, dev.ID, manifest)
	}
	r.effective[dev.ID] = shared
	if err := r.memory.Keep(dev, manifest); err != nil { // before others hear of it, and ask for the manifest
		r.notKept(dev, err)
	}
	r.publish(at, dev)
}

// offline notes that a device cannot be reached, and why. It tells whether that
// is news.
func (r *roster) offline(at *slot, why error) bool {
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
	r.keep(&dev)
	return true
}

// release notes until when the device with an ID, and all else at its place, is
// left alone. It tells their addresses; none, if it was to be taken back and had
// not been released.
func (r *roster) release(id string, until time.Time) (addresses []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	address, ok := r.ids[id]
	if !ok {
		return nil, ferrule.UnknownDevice(id)
	}
	if err := r.notHere(id); err != nil {
		return nil, err
	}
	at := r.slots[address]
	if at == nil || at.sighting.Absent != "" {
		return nil, ferrule.Errorf(ferrule.Offline, "%s is not in sight, so there is nothing to release", id)
	}
	addresses, keys := []string{address}, []string{address}
	if place := at.sighting.Place; place != "" {
		for other, slot := range r.slots {
			if other != address && slot.sighting.Place == place {
				addresses = append(addresses, other)
			}
		}
		keys = append(slices.Clone(addresses), place)
	}
	away := slices.ContainsFunc(keys, func(key string) bool { _, so := r.away[key]; return so })
	if !away && !time.Now().Before(until) {
		return nil, nil
	}
	for _, key := range keys {
		r.away[key] = until
	}
	return addresses, nil
}

// released tells whether a device is to be left alone, until when, and publishes
// that it is.
func (r *roster) released(at *slot) (until time.Time, away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range []string{at.sighting.Address, at.sighting.Place} {
		if t, ok := r.away[key]; ok && time.Now().Before(t) {
			until, away = t, true
		} else {
			delete(r.away, key)
		}
	}
	if !away {
		return until, false
	}
	dev := *at.device.Load()
	dev.Reason = "was released for other programs until " + ferrule.FormatTime(until)
	if dev.State != ferrule.StateReleased {
		dev.State, dev.Since = ferrule.StateReleased, time.Now()
		r.log.Info("device "+dev.Reason, "device", dev.ID)
	}
	r.publish(at, &dev)
	return until, true
}

// adopt trusts a device, and tells its address.
func (r *roster) adopt(id string) (address string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.notHere(id); err != nil {
		return "", err
	}
	was, ok := r.memory.Get(id)
	at := r.slots[r.ids[id]]
	switch {
	case !ok && at == nil:
		return "", ferrule.UnknownDevice(id)
	case !ok && at.sighting.Absent != "":
		return "", at.device.Load().OfflineError()
	case !ok:
		was = at.device.Load() // it was not even opened
	}
	dev := *was
	dev.Trust = ferrule.TrustAdopted
	if at := r.slots[dev.Address]; at != nil {
		r.publish(at, &dev)
	} else {
		r.list(&dev)
	}
	return dev.Address, r.memory.Keep(&dev, nil)
}

// address tells where the device with an ID is, or was.
func (r *roster) address(id string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	address, ok := r.ids[id]
	return address, ok
}

// forget drops what is known of a device. It tells its address; if that is in
// sight, the device is expected there anew.
func (r *roster) forget(id string) (address string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.notHere(id); err != nil {
		return "", err
	}
	dev, err := r.known(id)
	if err != nil {
		return "", err
	}
	return dev.Address, r.evict(id)
}

// known returns a device of which there is something to forget.
func (r *roster) known(id string) (*ferrule.Device, error) {
	if dev, ok := r.memory.Get(id); ok {
		return dev, nil
	}
	if at := r.slots[r.ids[id]]; at != nil {
		return nil, at.device.Load().OfflineError()
	}
	return nil, ferrule.UnknownDevice(id)
}

// evict takes an ID from whoever has it, and with it all that is known of that
// device. If it is in sight, it is expected there.
func (r *roster) evict(id string) error {
	at := r.slots[r.ids[id]]
	r.unlist(id)
	err := r.memory.Forget(id)
	if at != nil {
		r.expect(at)
	}
	return err
}

// unlist takes an ID out of the fleet.
func (r *roster) unlist(id string) {
	delete(r.ids, id)
	r.fleet.Remove(id)
	delete(r.effective, id)
}

// supersede takes out what an address was called before.
func (r *roster) supersede(was, dev *ferrule.Device) {
	if was.ID != dev.ID && r.ids[was.ID] == dev.Address {
		r.unlist(was.ID)
	}
}

// publish makes dev what the fleet knows of an address.
func (r *roster) publish(at *slot, dev *ferrule.Device) {
	if was := at.device.Load(); was != nil {
		r.supersede(was, dev)
	}
	dev = r.ours(dev)
	r.ids[dev.ID] = dev.Address
	at.device.Store(dev)
	r.fleet.Put(dev, r.effective[dev.ID], at.way)
}

// list makes dev what the fleet knows of an address that is out of sight.
func (r *roster) list(dev *ferrule.Device) {
	r.ids[dev.ID] = dev.Address
	r.fleet.Put(r.ours(dev), r.effective[dev.ID], nil)
}

// keep remembers a device, if there is anything to remember.
func (r *roster) keep(dev *ferrule.Device) {
	if dev.Kind == "" {
		return
	}
	if err := r.memory.Keep(dev, nil); err != nil {
		r.notKept(dev, err)
	}
}

func (r *roster) notKept(dev *ferrule.Device, err error) {
	r.log.Warn("a device will not be remembered as it is", "device", dev.ID, "err", err)
}

// name chooses the ID of a device: the name that its owner gave it, else the one
// that it has, unless another node has given that away, else one that is new.
func (r *roster) name(s *transport.Sighting, model string, before *ferrule.Device) string {
	if s.Name != "" && r.given[s.Name] == s.Address {
		return s.Name
	}
	if before != nil && before.Kind != "" && !r.taken(before.ID, s) {
		return before.ID
	}
	return r.choose(s, model)
}

// choose makes an ID of what a device calls itself, with digits of its address if
// that is taken. If another node knows the device by one of these, it is that.
func (r *roster) choose(s *transport.Sighting, model string) string {
	var free, last string
	for id := range r.candidates(s, model) {
		switch last = id; {
		case !r.free(id, s):
		case r.others == nil || r.elsewhere(id) != nil:
			return id
		case free == "":
			free = id
		}
	}
	return cmp.Or(free, last)
}

// candidates are the IDs that a device may get, best first. The last has so many
// digits that no other has it.
func (r *roster) candidates(s *transport.Sighting, model string) iter.Seq[string] {
	slug := cmp.Or(ferrule.Slug(model), "device")
	source := s.Address
	if s.Local {
		source = r.node + source
	}
	sum := sha256.Sum256([]byte(source))
	digits := hex.EncodeToString(sum[:])
	return func(yield func(string) bool) {
		more := yield(slug)
		for n := 4; more && n <= ferrule.MaxID-2; n += 2 {
			more = yield(strings.TrimRight(slug[:min(len(slug), ferrule.MaxID-n-1)], "-") + "-" + digits[:n])
		}
	}
}

// free tells whether what was sighted may have an ID.
func (r *roster) free(id string, s *transport.Sighting) bool {
	for _, at := range []string{r.ids[id], r.given[id]} {
		if at != "" && at != s.Address {
			return false
		}
	}
	return id != ferrule.GatewayID && !r.taken(id, s)
}

// trust tells whether a device is adopted: because its owner asked for it, or
// because they have adopted it before.
func trust(s *transport.Sighting, before *ferrule.Device) ferrule.Trust {
	switch {
	case s.Adopted:
		return ferrule.TrustAdopted
	case before != nil:
		return before.Trust
	}
	return ferrule.TrustPending
}

// compare notes what has changed about a device since it was last seen.
func (r *roster) compare(dev *ferrule.Device, manifest *ferrule.Manifest, before *ferrule.Device) {
	dev.Changed, dev.Previous = before.Changed, before.Previous
	if before.Kind == dev.Kind {
		return
	}
	dev.Changed, dev.Previous = time.Now(), before.Kind
	r.log.Warn(fmt.Sprintf("device has become another Kind: %s, it was %s", dev.Kind.Short(), before.Kind.Short()), "device", dev.ID)
	if old, err := r.memory.Manifest(before.Kind); err == nil {
		if note := shrunken(old, manifest); note != "" {
			dev.Notes = append(dev.Notes, note)
		}
	}
}

// shrunken tells of a device that offers less than it did and says that it is
// the same: a list that was cut without a trace looks so.
func shrunken(old, now *ferrule.Manifest) string {
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
	return fmt.Sprintf("its list has shrunk from %d tools and %d pins to %d and %d, and its version is the same: the board may be short of memory",
		len(old.Tools), len(old.Pins), len(now.Tools), len(now.Pins))
}
