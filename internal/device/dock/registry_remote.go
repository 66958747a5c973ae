package dock

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// remote returns a device as another node knows it, or nil.
func (r *registry) remote(id string) *ferrule.Device {
	if r.remotes == nil {
		return nil
	}
	if dev, ok := r.remotes.Known(id); ok {
		return dev
	}
	return nil
}

// sameDevice reports whether a sighting is a device that another node knows. A peer
// that dials in can claim any address, so it must be one that its owner configured.
func sameDevice(s *transport.Sighting, there *ferrule.Device) bool {
	return there.Address == s.Address && !s.Local && (s.Adopted || !s.Inbound)
}

// takenRemotely reports whether an ID belongs to another device on another node.
func (r *registry) takenRemotely(id string, s *transport.Sighting) bool {
	there := r.remote(id)
	return there != nil && !sameDevice(s, there)
}

// lostName reports whether a device needs another ID. A configured name stays, and
// so does the address of a device that was never reached and has no title.
func (r *registry) lostName(dev *ferrule.Device, s *transport.Sighting) bool {
	return (dev.Kind != "" || dev.Title != "") && r.ownerNames[dev.ID] != dev.Address && r.takenRemotely(dev.ID, s)
}

// holder returns an error if another node holds a device now.
func (r *registry) holder(at *slot) error {
	there := r.remote(at.device.Load().ID)
	if there == nil || there.State != ferrule.StateOnline || !sameDevice(at.sighting, there) {
		return nil
	}
	return fmt.Errorf("%s holds it", nodeOf(there))
}

func nodeOf(dev *ferrule.Device) string {
	if dev.Node == "" {
		return "another node"
	}
	return "node " + dev.Node
}

// remoteClaims reports what other nodes claim of a device in sight: its name, for
// another device, or the device itself.
func (r *registry) remoteClaims(at *slot) (lost bool, holder error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lostName(at.device.Load(), at.sighting), r.holder(at)
}

// syncRemote applies what other nodes know of a device before it is connected: a
// lost name, its trust and labels. It returns an error if one of them holds it.
func (r *registry) syncRemote(at *slot) (holder error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if dev := at.device.Load(); r.lostName(dev, at.sighting) {
		r.publish(at, r.yieldName(dev, at.sighting))
	}
	r.inherit(at)
	return r.holder(at)
}

// reconsider renames a device out of sight if it lost its name.
func (r *registry) reconsider(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dev, ok := r.store.Get(id)
	if !ok || r.ids[id] != dev.Address || r.slots[dev.Address] != nil {
		return
	}
	if s := (&transport.Sighting{Address: dev.Address, Title: dev.Title}); r.lostName(dev, s) {
		r.publishAbsent(r.yieldName(dev, s))
	}
}

// yieldName gives a device a new ID because another node uses its name. Everything
// else stays.
func (r *registry) yieldName(dev *ferrule.Device, s *transport.Sighting) *ferrule.Device {
	there, id := r.remote(dev.ID), r.newID(s, dev.Model)
	r.log.Info("name belongs to a device on another node; renamed to "+id, "device", dev.ID, "node", there.Node)
	return r.rename(dev, id)
}

// lastKnown returns the latest record of a device: that of another node, since it
// was there last, else the stored one, which may be nil.
func (r *registry) lastKnown(id string, s *transport.Sighting, kept *ferrule.Device) *ferrule.Device {
	if there := r.remote(id); there != nil && sameDevice(s, there) && (there.Kind != "" || kept == nil) {
		return there
	}
	return kept
}

// inherit copies trust and labels from the record of another node.
func (r *registry) inherit(at *slot) {
	dev := at.device.Load()
	last := r.lastKnown(dev.ID, at.sighting, dev)
	trust, sensor := trustOf(at.sighting, at.sighting.Sensor, last, dev)
	if last == dev || trust == dev.Trust && sensor == dev.Sensor && maps.Equal(last.Labels, dev.Labels) {
		return
	}
	updated := *dev
	updated.Trust, updated.Sensor, updated.Labels = trust, sensor, last.Labels
	r.publish(at, &updated)
	r.storeDevice(&updated)
}

// localRecord returns a device as this node publishes it: with the name of the node,
// and a note if a configured name is also used on another node.
func (r *registry) localRecord(dev *ferrule.Device) *ferrule.Device {
	notes := slices.DeleteFunc(slices.Clone(dev.Notes), func(note string) bool { return strings.HasPrefix(note, namesake) })
	if at := r.slots[dev.Address]; at != nil && r.ownerNames[dev.ID] == dev.Address && r.takenRemotely(dev.ID, at.sighting) {
		notes = append(notes, fmt.Sprintf("%s%s on %s, and other nodes see that one; rename one of the two",
			namesake, dev.ID, nodeOf(r.remote(dev.ID))))
	}
	if dev.Node == r.node && slices.Equal(dev.Notes, notes) {
		return dev
	}
	local := *dev
	local.Node, local.Notes = r.node, notes
	return &local
}

// namesake is the prefix of the note about a duplicate name.
const namesake = "another device is named "

// refreshNotes publishes a device again if the note about its name changed.
func (r *registry) refreshNotes(at *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if dev := at.device.Load(); r.localRecord(dev) != dev {
		r.publish(at, dev)
	}
}

// checkHeldHere returns an error if another node holds a device: decisions about it
// are made there.
func (r *registry) checkHeldHere(id string) error {
	address := r.ids[id]
	s := &transport.Sighting{Address: address}
	if at := r.slots[address]; at != nil {
		if at.device.Load().State == ferrule.StateOnline {
			return nil
		}
		s = at.sighting
	}
	there := r.remote(id)
	if there == nil || there.State != ferrule.StateOnline || !sameDevice(s, there) {
		return nil
	}
	return ferrule.Errorf(ferrule.Offline, "%s is held by %s", id, nodeOf(there)).WithHint("run the command on that node")
}
