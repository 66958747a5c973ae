package hass

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// device is a device as its configs describe it. The hub's lock guards it.
type device struct {
	key, address string
	number       uint64   // order of appearance
	ids          []uint64 // its places in Hub.byID
	// claimant reports that its identifiers are those of another device, which another
	// publisher described first. It is never adopted without being asked for.
	claimant bool
	// rivals are devices of other publishers with its identifiers that were found in the
	// same reading of all configs: which one was first then means nothing.
	rivals []*device
	known  []known
	packed []byte             // configs that have settled
	fresh  map[uint64]*config // changes since then; nil for a removed one

	// The following fields follow from the configs. They are stale after one was changed or
	// removed, until the configs settle.

	stale       bool
	title, area string
	entities    int
	commands    bool     // something can be changed with it
	secret      bool     // it may be told or may say a code
	rules       []rule   // different ones of its entities
	claims      []uint64 // its places in Hub.claims

	// The following fields are what was reported.

	reported bool
	instance uint64 // 0 if the configs have changed since
	absent   string
	changed  time.Time // when it last became available or not
	lost     bool      // absent, because the broker is lost

	dirty   bool      // configs have changed
	renewed bool      // they have, and that is not reported yet
	quiet   time.Time // when the configs have settled
	missing time.Time // since when it is unavailable; zero if it is not
	expires time.Time // when migrating configs are removed; zero for none
	link    *link
}

// known is a config of a device, without its content. There are very many.
type known struct {
	key       uint64 // hash of the topic
	sum       uint32 // of the payload
	publisher uint32 // hash of origin and node ID
	size      uint32 // of the payload
	read      uint16 // the last read of all configs that found it
	migrating bool
}

var errChanged = errors.New("the device has changed its description")

// apply applies a message with a config, or of an availability topic.
func (h *Hub) apply(m *mqttclient.Message) {
	topic, ok := discovery.ParseTopic(h.cfg.Prefix, m.Topic)
	if !ok {
		for _, d := range h.sources.read(m.Topic, m.Payload) {
			h.waiting[d] = struct{}{}
		}
		if strings.HasPrefix(m.Topic, h.cfg.Prefix+"/") && strings.HasSuffix(m.Topic, "/config") && len(m.Payload) > 0 {
			h.refuse(m.Topic, "the topic has an invalid ID")
		}
		return
	}
	key := h.hash(topic.String())
	owner := h.byConfig[key]
	if len(m.Payload) == 0 {
		if owner != nil {
			h.removeConfig(owner, key)
		}
		return
	}
	sum := h.sum(m.Payload)
	if owner != nil {
		was := owner.config(key)
		was.read = h.read
		if was.sum == sum {
			if was.migrating { // it is in use again
				was.migrating, owner.stale = false, true
				h.touch(owner)
			}
			return
		}
	}
	message, err := discovery.Parse(topic, m.Payload)
	switch {
	case err != nil:
		h.refuse(m.Topic, err.Error())
	case message.Origin.Name == ferrule.EntityOrigin: // a device of a gateway
	case message.Migrate:
		h.migrate(owner, key)
	default:
		h.put(topic, message, known{key: key, sum: sum, publisher: h.publisher(topic, message), size: uint32(len(m.Payload)), read: h.read}, string(m.Payload))
	}
}

// publisher returns the hash of what distinguishes publishers: the name of the software,
// and the node ID. A message about a whole device has that of its entities.
func (h *Hub) publisher(topic discovery.Topic, m *discovery.Message) uint32 {
	node := topic.NodeID
	if m.Whole && len(m.Entities) > 0 {
		node = m.Entities[0].NodeID
	}
	return uint32(h.hash("publisher", m.Origin.Name, node))
}

func (d *device) config(key uint64) *known {
	if i := slices.IndexFunc(d.known, func(k known) bool { return k.key == key }); i >= 0 {
		return &d.known[i]
	}
	return nil
}

// size returns the size of all configs.
func (d *device) size() (n int) {
	for _, k := range d.known {
		n += int(k.size)
	}
	return n
}

// put stores a config.
func (h *Hub) put(topic discovery.Topic, m *discovery.Message, k known, payload string) {
	owner := h.byConfig[k.key]
	d := h.find(m, &k, owner)
	switch {
	case d == nil:
		h.refuse(h.configTopic(topic), fmt.Sprintf("too many devices; limit is %d", maxDevices))
		return
	case owner != d && len(d.known) >= maxConfigs:
		h.refuse(h.configTopic(topic), fmt.Sprintf("too many messages about the device; limit is %d", maxConfigs))
		return
	case d.size()+len(payload) > maxDevice:
		h.refuse(h.configTopic(topic), fmt.Sprintf("the messages about the device are too long; limit is %d bytes", maxDevice))
		return
	case h.size+h.raw+len(payload) > maxStored:
		h.refuse(h.configTopic(topic), "too many messages: no space is left")
		return
	}
	if owner != nil && owner != d {
		h.removeConfig(owner, k.key)
	}
	if was := d.config(k.key); was != nil {
		*was, d.stale = k, true
	} else {
		d.known = append(d.known, k)
		h.add(d, m)
	}
	h.byConfig[k.key] = d
	if len(h.refused) > 0 {
		delete(h.refused, h.hash(h.configTopic(topic)))
	}
	h.change(d, k.key, &config{topic.Component, topic.NodeID, topic.ObjectID, payload})
}

// configTopic returns the topic of a config.
func (h *Hub) configTopic(t discovery.Topic) string {
	return h.cfg.Prefix + "/" + t.String() + "/config"
}

// change notes a new or removed config.
func (h *Hub) change(d *device, key uint64, c *config) {
	if d.fresh == nil {
		d.fresh = make(map[uint64]*config)
	}
	if was := d.fresh[key]; was != nil {
		h.raw -= len(was.Payload)
	}
	if c != nil {
		h.raw += len(c.Payload)
	}
	d.fresh[key] = c
	h.fresh[d] = struct{}{}
	h.touch(d)
}

// touch notes that the description of a device is another one. What was reported of it can
// no longer be opened, and the link ends at once: no call must use topics that are no longer
// right.
func (h *Hub) touch(d *device) {
	h.waiting[d] = struct{}{}
	d.instance = 0
	d.dirty, d.quiet = true, time.Now().Add(settleTime)
	if len(d.known) == 0 {
		d.quiet = time.Now().Add(goneTime)
		if d.expires.After(d.quiet) {
			d.quiet = d.expires
		}
	}
	d.endLink(errChanged)
}

// removeConfig removes a config of a device.
func (h *Hub) removeConfig(d *device, key uint64) {
	d.known = slices.DeleteFunc(d.known, func(k known) bool { return k.key == key })
	d.stale = true
	delete(h.byConfig, key)
	h.change(d, key, nil)
}

// migrate notes that a publisher is about to describe the device by other messages. The
// old config stays until then.
func (h *Hub) migrate(d *device, key uint64) {
	if d == nil {
		return
	}
	d.config(key).migrating, d.stale = true, true
	d.expires = time.Now().Add(migrateTime)
	h.waiting[d] = struct{}{}
}

// expire removes configs that were to be replaced and were not.
func (h *Hub) expire(d *device) {
	d.expires = time.Time{}
	for _, k := range slices.Clone(d.known) {
		if k.migrating {
			h.removeConfig(d, k.key)
		}
	}
}

// find returns the device that a message is about, and creates it if it is new; nil if
// there are too many. Messages that share an identifier are about one device, if one
// publisher sends them. Otherwise anybody could add tools to a lock, or replace them.
func (h *Hub) find(m *discovery.Message, k *known, owner *device) *device {
	ids := h.ids(&m.Device)
	var found *device
	var refused []*device // that have the identifiers
	for _, id := range ids {
		switch d := h.byID[id]; {
		case d == nil || d == found:
		case d != owner && !d.accepts(k.publisher):
			refused = append(refused, d)
		case found == nil:
			found = d
		default:
			found = h.merge(found, d)
		}
	}
	key, claimant := m.Device.Key(), len(refused) > 0
	if found == nil && claimant {
		// The same publisher may have claimed them before.
		for i := range ids {
			ids[i] ^= uint64(k.publisher)
			found = cmp.Or(found, h.byID[ids[i]])
		}
		key = fmt.Sprintf("%s~%s", key, cmp.Or(m.Origin.Name, "unknown"))
		if h.devices[h.address(key)] != nil {
			key = fmt.Sprintf("%s-%04x", key, uint16(k.publisher))
		}
	}
	if found == nil {
		if found = h.create(key, claimant); found == nil {
			return nil
		}
	}
	for _, d := range refused {
		if !h.complete && len(d.rivals) < maxConfigs && !slices.Contains(d.rivals, found) {
			d.rivals = append(d.rivals, found)
		}
	}
	for _, id := range ids {
		if h.byID[id] == nil {
			h.byID[id] = found
			found.ids = append(found.ids, id)
		}
	}
	return found
}

// ids returns the hashes of what identifies a device.
func (h *Hub) ids(d *discovery.Device) []uint64 {
	ids := make([]uint64, 0, len(d.Identifiers)+1)
	for _, id := range d.Identifiers {
		ids = append(ids, h.hash("id", id))
	}
	if d.MAC != "" {
		ids = append(ids, h.hash("mac", d.MAC))
	}
	return ids
}

// accepts reports whether a publisher may add to the device: one that has described it, or
// any while it migrates or has no config left.
func (d *device) accepts(publisher uint32) bool {
	return len(d.known) == 0 || slices.ContainsFunc(d.known, func(k known) bool { return k.publisher == publisher || k.migrating })
}

func (h *Hub) address(key string) string { return h.cfg.Broker + "/" + ferrule.Clean(key, 255) }

// create returns a new device, or nil if there are too many.
func (h *Hub) create(key string, claimant bool) *device {
	if len(h.devices) >= maxDevices {
		return nil
	}
	address := h.address(key)
	for n := 2; h.devices[address] != nil; n++ {
		address = fmt.Sprintf("%s~%d", h.address(key), n)
	}
	h.sequence++
	d := &device{key: key, address: address, number: h.sequence, claimant: claimant}
	h.devices[address] = d
	return d
}

// merge makes one device of two that turned out to be the same. The older one stays.
func (h *Hub) merge(a, b *device) *device {
	if b.number < a.number {
		a, b = b, a
	}
	configs, err := h.current(b)
	if err != nil || len(a.known)+len(b.known) > maxConfigs {
		return a
	}
	h.packFresh(b)
	for _, c := range configs {
		key := h.hash(c.topic().String())
		h.byConfig[key] = a
		h.change(a, key, &c)
	}
	a.known, a.stale = append(a.known, b.known...), true
	a.ids = append(a.ids, b.ids...)
	for _, id := range b.ids {
		h.byID[id] = a
	}
	b.known, b.ids = nil, nil
	h.change(b, 0, nil)
	b.quiet = time.Now()
	return a
}

// current returns the present configs of a device, sorted.
func (h *Hub) current(d *device) ([]config, error) {
	configs, err := unpack(d.packed)
	if err != nil || len(d.fresh) == 0 {
		return configs, err
	}
	configs = slices.DeleteFunc(configs, func(c config) bool {
		_, changed := d.fresh[h.hash(c.topic().String())]
		return changed
	})
	for _, c := range d.fresh {
		if c != nil {
			configs = append(configs, *c)
		}
	}
	slices.SortFunc(configs, func(a, b config) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Object, b.Object))
	})
	return configs, nil
}

// packAll compresses the configs of all devices.
func (h *Hub) packAll() {
	for d := range h.fresh {
		h.packFresh(d)
	}
}

// packFresh compresses the configs of a device.
func (h *Hub) packFresh(d *device) {
	if d.fresh == nil {
		return
	}
	configs, err := h.current(d)
	if err != nil {
		h.log.Error("configs are lost", "device", d.address, "err", err)
	}
	for _, c := range d.fresh {
		if c != nil {
			h.raw -= len(c.Payload)
		}
	}
	h.size -= len(d.packed)
	d.packed, d.fresh = pack(configs), nil
	h.size += len(d.packed)
	delete(h.fresh, d)
}

// settle acts on what has changed about a device. It returns its group if that must be
// reported.
func (h *Hub) settle(d *device, now time.Time) ([]transport.Sighting, bool) {
	if !d.expires.IsZero() && !now.Before(d.expires) {
		h.expire(d)
	}
	if d.dirty && now.Before(d.quiet) {
		return nil, false
	}
	if len(d.known) == 0 {
		return nil, h.remove(d)
	}
	if d.dirty {
		d.dirty, d.renewed = false, true
		h.packFresh(d)
		if d.stale {
			h.derive(d)
		}
	}
	absent := h.absence(d)
	was := d.reported && d.absent == ""
	switch {
	case absent == "":
		d.missing = time.Time{}
		if d.reported && !was && !d.renewed && now.Sub(d.changed) < flapTime {
			return nil, false
		}
	case d.missing.IsZero():
		d.missing = now
		return nil, false
	case now.Sub(d.missing) < flapTime && (was || !d.reported):
		return nil, false
	}
	if d.expires.IsZero() {
		delete(h.waiting, d)
	}
	if d.reported && !d.renewed && !d.lost && was == (absent == "") {
		return nil, false
	}
	if was != (absent == "") {
		d.changed = now
	}
	d.absent, d.reported, d.renewed, d.lost = absent, true, false, false
	return []transport.Sighting{h.sighting(d)}, true
}

// absence returns why a device is unavailable; empty if any of its entities is not.
func (h *Hub) absence(d *device) string {
	if d.commands && slices.ContainsFunc(d.rivals, func(r *device) bool { return r.commands && len(r.known) > 0 }) {
		return "another publisher describes a device with the same identifiers, and which one is right cannot be known: remove the messages of one of them"
	}
	reason := ""
	for i := range d.rules {
		holds, why := d.rules[i].available()
		if holds {
			return ""
		}
		reason = cmp.Or(reason, why)
	}
	return reason
}

// sighting returns the present sighting of a device, as a new instance.
func (h *Hub) sighting(d *device) transport.Sighting {
	h.instance++
	d.instance = h.instance
	s := transport.Sighting{
		Address: d.address, Local: h.cfg.Local, Instance: d.instance, Transport: mqttclient.Name, Title: d.title, Absent: d.absent,
		Adopted:   !d.claimant && h.cfg.Adopt == AdoptAll,
		Sensor:    !d.claimant && h.cfg.Adopt == AdoptSensors && !d.commands,
		Doubted:   d.claimant,
		Protocols: []string{Name}, Open: h.opener(d.address, d.instance),
	}
	if d.area != "" {
		s.Claims = map[string]string{"area": d.area}
	}
	return s
}

// remove forgets a device. It reports whether the device had been reported.
func (h *Hub) remove(d *device) bool {
	h.packFresh(d)
	h.size -= len(d.packed)
	h.sources.drop(d, d.rules)
	h.release(d)
	for _, id := range d.ids {
		if h.byID[id] == d {
			delete(h.byID, id)
		}
	}
	d.endLink(errors.New("the device was removed"))
	delete(h.waiting, d)
	delete(h.devices, d.address)
	for _, other := range h.devices {
		if slices.Contains(other.rivals, d) {
			other.rivals = slices.DeleteFunc(other.rivals, func(r *device) bool { return r == d })
			h.waiting[other] = struct{}{}
		}
	}
	h.promote(d)
	return d.reported
}

// promote gives the identifiers of a removed device to the one that claimed them first: a
// firmware may describe its device by other topics after an update.
func (h *Hub) promote(gone *device) {
	var next *device
	for _, d := range h.devices {
		if d.claimant && len(d.known) > 0 && strings.HasPrefix(d.key, gone.key+"~") && (next == nil || d.number < next.number) {
			next = d
		}
	}
	if next == nil {
		return
	}
	configs, err := h.current(next)
	if err != nil {
		return
	}
	for _, id := range next.ids {
		delete(h.byID, id)
	}
	next.ids = nil
	for _, c := range configs {
		key := h.hash(c.topic().String())
		k := next.config(key)
		message, err := discovery.Parse(c.topic(), []byte(c.Payload))
		if k == nil || err != nil {
			continue
		}
		moved := *k
		h.removeConfig(next, key)
		h.put(c.topic(), message, moved, c.Payload)
	}
}
