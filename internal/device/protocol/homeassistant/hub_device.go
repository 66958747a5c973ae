package homeassistant

import (
	"cmp"
	"encoding/json"
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// flapTime is for how long a device must be unavailable before that is reported: a call to a
// device that is away for a moment should not fail. Coming back is reported at once.
const flapTime = time.Second

// missingTime is how long an entity without an entry in the registry is kept after a restart of
// Home Assistant: what provides it may still be loading.
const missingTime = time.Minute

// hubDevice is a device that was reported. The hub's lock guards it.
type hubDevice struct {
	address  string
	desc     *home.Device
	services []int  // in Hub.services, that act on one of its entities
	shape    uint64 // hash of the offer
	sensor   bool   // nothing can be changed with it
	revision uint64 // grows when shape or sensor changes
	instance uint64
	absent   string
	title    string
	claims   map[string]string
	away     time.Time // since when it is unavailable, if that is not reported yet
	link     *link
}

// reasonWithdrawn is why a device is gone.
const reasonWithdrawn = "removed from Home Assistant, or no longer exposed to Assist"

// change is what applying an inventory has changed: sightings of devices that are there and of those
// that are gone.
type change struct {
	sightings, gone []transport.Sighting
}

// apply replaces what the home has.
func (h *Hub) apply(inventory *home.Inventory, services []hubService, temperature string) (c change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inventory, h.services, h.temperature = inventory, services, temperature
	h.complete = true
	before := maps.Clone(h.devices)
	addresses := h.addresses(inventory.Devices)
	clear(h.owners)
	for i, desc := range inventory.Devices {
		address := addresses[i]
		d := h.devices[address]
		known := d != nil
		if !known {
			d = &hubDevice{address: address}
			h.devices[address] = d
		}
		delete(before, address)
		if h.set(d, desc) || !known {
			c.sightings = append(c.sightings, h.sighting(d, !known || d.absent != ""))
		}
	}
	for address, d := range before {
		d.absent = reasonWithdrawn
		d.endLink(errors.New(reasonWithdrawn))
		delete(h.devices, address)
		delete(h.checks, d)
		gone := h.sighting(d, false)
		gone.Withdrawn = true
		c.gone = append(c.gone, gone)
	}
	return c
}

// set replaces the description of a device. It reports whether its sighting is another one.
func (h *Hub) set(d *hubDevice, desc *home.Device) bool {
	old := d.desc
	d.desc, d.services = desc, h.servicesOf(desc)
	for i := range desc.Entities {
		h.owners[desc.Entities[i].ID] = d
	}
	revised := h.revise(d, old)
	absent := h.absence(d)
	title, claims := cmp.Or(desc.Name, desc.Model, desc.ID), claimsOf(desc)
	same := !revised && d.title == title && maps.Equal(d.claims, claims) && d.absent == absent
	d.title, d.claims = title, claims
	if absent == "" {
		d.away = time.Time{}
	}
	if old != nil && d.absent == "" && absent != "" {
		h.checks[d] = struct{}{} // after flapTime
		return !same
	}
	if d.absent != absent && absent == "" {
		d.absent = ""
		h.renew(d)
	}
	d.absent = absent
	return !same
}

// errChanged is why a sighting can no longer be opened.
var errChanged = errors.New("the device has changed its description")

// revise notes that a device offers something else, if it does. A session is told so. What was
// reported before can no longer be opened, because it was judged by the old description.
func (h *Hub) revise(d *hubDevice, old *home.Device) bool {
	shape, sensor := h.shape(d), !h.commands(d)
	if shape == d.shape && sensor == d.sensor {
		return false
	}
	d.shape, d.sensor = shape, sensor
	d.revision++
	switch {
	case d.link != nil && d.link.described:
		d.link.pushOffer(h.newStates(old, d.desc))
	case old != nil:
		d.endLink(errChanged)
		h.renew(d)
	}
	return true
}

// claimsOf returns what Home Assistant says about a device for people to find it.
func claimsOf(desc *home.Device) map[string]string {
	claims := make(map[string]string)
	for key, value := range map[string]string{"area": desc.Area, "floor": desc.Floor, "labels": strings.Join(desc.Labels, ",")} {
		if value != "" {
			claims[key] = value
		}
	}
	return claims
}

// renew makes the next sighting of a device a new instance.
func (h *Hub) renew(d *hubDevice) {
	h.instance++
	d.instance = h.instance
}

// sighting returns the present sighting of a device.
func (h *Hub) sighting(d *hubDevice, renew bool) transport.Sighting {
	if renew {
		h.renew(d)
	}
	return transport.Sighting{
		Address: d.address, Local: h.cfg.Local, Instance: d.instance, Transport: Name, Title: d.title, Claims: maps.Clone(d.claims), Absent: d.absent,
		Adopted:   h.cfg.Adopt == AdoptAll,
		Sensor:    h.cfg.Adopt == AdoptSensors && d.sensor,
		Protocols: []string{Name}, Open: h.opener(d.address, d.revision),
	}
}

// commands reports whether something can be changed with a device.
func (h *Hub) commands(d *hubDevice) bool {
	return slices.ContainsFunc(d.services, func(i int) bool { return h.services[i].Response != "always" })
}

// addresses returns the address of each device. One that is known keeps its address, even if
// Home Assistant gives it another ID; then it still has one of its identifiers.
func (h *Hub) addresses(all []*home.Device) []string {
	byID, byKey := make(map[string]string), make(map[string]string)
	present := make(map[string]bool, len(all))
	for _, desc := range all {
		present[localID(desc)] = true
	}
	for address, d := range h.devices {
		byID[localID(d.desc)] = address
		if !present[localID(d.desc)] {
			for _, key := range d.desc.Keys {
				byKey[key] = address
			}
		}
	}
	out, taken := make([]string, len(all)), make(map[string]bool, len(all))
	for i, desc := range all {
		out[i] = byID[localID(desc)]
		for _, key := range desc.Keys {
			if out[i] == "" && !taken[byKey[key]] {
				out[i] = byKey[key]
			}
		}
		taken[out[i]] = true
	}
	for i, desc := range all {
		if out[i] == "" {
			out[i] = h.newAddress(desc, taken)
			taken[out[i]] = true
		}
	}
	return out
}

// localID returns what identifies a device in one reading. A group is told from a device.
func localID(desc *home.Device) string {
	if desc.Group {
		return "/" + desc.ID
	}
	return desc.ID
}

// newAddress returns the address of a device that was not known: from its first identifier, which
// survives if it is removed and added again.
func (h *Hub) newAddress(desc *home.Device, taken map[string]bool) string {
	key := desc.ID
	switch {
	case desc.Group:
		key = "integration/" + desc.ID
	case len(desc.Keys) > 0:
		key = desc.Keys[0]
	}
	address := h.cfg.Home + "/" + ferrule.Clean(key, 200)
	if taken[address] || h.devices[address] != nil {
		address += "~" + ferrule.Clean(desc.ID, 32)
	}
	return address
}

// servicesOf returns the services that act on an entity of a device. Those of other integrations
// are left out: some act on every entity of the home.
func (h *Hub) servicesOf(desc *home.Device) (all []int) {
	for i := range h.services {
		s := &h.services[i].Service
		if s.Domain != "homeassistant" && slices.ContainsFunc(desc.Entities, func(e home.Entity) bool {
			return (s.Domain == e.Domain || s.Domain == e.Platform) && s.Fits(&e)
		}) {
			all = append(all, i)
		}
	}
	return all
}

// hubOffer is home.Offer with services that are encoded already.
type hubOffer struct {
	Device      home.Device       `json:"device"`
	Services    []json.RawMessage `json:"services,omitempty"`
	Temperature string            `json:"temperature,omitempty"`
	Settings    bool              `json:"settings,omitempty"`
}

// offerOf returns the offer of a device as JSON.
func (h *Hub) offerOf(d *hubDevice) ([]byte, error) {
	o := hubOffer{Device: *d.desc, Temperature: h.temperature, Settings: h.cfg.Settings}
	for _, i := range d.services {
		o.Services = append(o.Services, h.services[i].encoded)
	}
	return json.Marshal(&o)
}

// shape returns a hash of what a device offers, without what people call it and where it is.
func (h *Hub) shape(d *hubDevice) uint64 {
	desc := *d.desc
	desc.ID, desc.Name, desc.Area, desc.Floor, desc.Labels, desc.Keys = "", "", "", "", nil, nil
	sum := fnv.New64a()
	json.NewEncoder(sum).Encode(&hubOffer{Device: desc, Temperature: h.temperature, Settings: h.cfg.Settings})
	for _, i := range d.services {
		sum.Write(h.services[i].encoded)
	}
	return sum.Sum64()
}

// newStates returns the entities that a device did not have before.
func (h *Hub) newStates(old, desc *home.Device) (ids []string) {
	for i := range desc.Entities {
		id := desc.Entities[i].ID
		if old == nil || !slices.ContainsFunc(old.Entities, func(e home.Entity) bool { return e.ID == id }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// absence returns why a device is unavailable; empty if any of its entities is not.
func (h *Hub) absence(d *hubDevice) string {
	for i := range d.desc.Entities {
		if state := h.states.JSON(d.desc.Entities[i].ID); state != nil && !home.IsUnavailable(state) {
			return ""
		}
	}
	return "Home Assistant says that it is unavailable"
}

// settle reports devices that are unavailable for some time, or are back. Next is when to look
// again; zero if there is nothing to wait for.
func (h *Hub) settle(now time.Time) (all []transport.Sighting, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.complete {
		return nil, next
	}
	for d := range h.checks {
		absent := h.absence(d)
		switch {
		case absent == d.absent, absent == "" && d.absent == "":
			d.away = time.Time{}
			delete(h.checks, d)
			continue
		case absent != "" && d.absent == "":
			if d.away.IsZero() {
				d.away = now
			}
			if due := d.away.Add(flapTime); now.Before(due) {
				if next.IsZero() || due.Before(next) {
					next = due
				}
				continue
			}
		}
		d.absent, d.away = absent, time.Time{}
		delete(h.checks, d)
		all = append(all, h.sighting(d, true))
	}
	return all, next
}
