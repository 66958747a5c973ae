package dock

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// elsewhere returns a device as another node knows it, or nil.
func (r *roster) elsewhere(id string) *ferrule.Device {
	if r.others == nil {
		return nil
	}
	if dev, ok := r.others.Known(id); ok {
		return dev
	}
	return nil
}

// same tells whether what another node knows is what was sighted here. Whoever dials in
// can say any address: it has to have shown that its owner asked for it.
func same(s *transport.Sighting, there *ferrule.Device) bool {
	return there.Address == s.Address && !s.Local && (s.Adopted || !s.Inbound)
}

// taken tells whether another node has given an ID to another device than what was
// sighted here.
func (r *roster) taken(id string, s *transport.Sighting) bool {
	there := r.elsewhere(id)
	return there != nil && !same(s, there)
}

// lost tells whether a device has to be called something else. A name that its
// owner gave it stays, and so does the address of what was never reached.
func (r *roster) lost(dev *ferrule.Device, s *transport.Sighting) bool {
	return dev.Kind != "" && r.given[dev.ID] != dev.Address && r.taken(dev.ID, s)
}

// holder says that another node has a device now; it is nil if none has.
func (r *roster) holder(at *slot) error {
	there := r.elsewhere(at.device.Load().ID)
	if there == nil || there.State != ferrule.StateOnline || !same(at.sighting, there) {
		return nil
	}
	return fmt.Errorf("%s has it", nodeOf(there))
}

func nodeOf(dev *ferrule.Device) string {
	if dev.Node == "" {
		return "another node"
	}
	return "node " + dev.Node
}

// rival tells what other nodes have of a device that is in sight: its name, for
// another device, or the device itself.
func (r *roster) rival(at *slot) (lost bool, holder error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost(at.device.Load(), at.sighting), r.holder(at)
}

// consult takes in what other nodes know of a device before it is opened: that
// its name is another's, and whether it is trusted. It says if one of them has
// it now.
func (r *roster) consult(at *slot) (holder error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if dev := at.device.Load(); r.lost(dev, at.sighting) {
		r.publish(at, r.yield(dev, at.sighting))
	}
	r.inherit(at)
	return r.holder(at)
}

// reconsider gives a device that is out of sight another name if its own is
// another's by now.
func (r *roster) reconsider(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dev, ok := r.memory.Get(id)
	if !ok || r.ids[id] != dev.Address || r.slots[dev.Address] != nil {
		return
	}
	if s := (&transport.Sighting{Address: dev.Address}); r.lost(dev, s) {
		r.list(r.yield(dev, s))
	}
}

// yield leaves the name of a device to another node's, and chooses another as if
// it were new here. Nothing else that is known of it changes.
func (r *roster) yield(dev *ferrule.Device, s *transport.Sighting) *ferrule.Device {
	there, id := r.elsewhere(dev.ID), r.choose(s, dev.Model)
	r.log.Info("the name belongs to another device elsewhere; this one is now called "+id, "device", dev.ID, "node", there.Node)
	return r.rename(dev, id)
}

// before returns what was known last of a device: what another node knows, since
// it was there last, else what is remembered here, which may be nil.
func (r *roster) before(id string, s *transport.Sighting, kept *ferrule.Device) *ferrule.Device {
	if there := r.elsewhere(id); there != nil && same(s, there) && (there.Kind != "" || kept == nil) {
		return there
	}
	return kept
}

// inherit takes over the trust and the labels that a device has been given on
// another node.
func (r *roster) inherit(at *slot) {
	dev := at.device.Load()
	last := r.before(dev.ID, at.sighting, dev)
	trusted := trust(at.sighting, last)
	if last == dev || trusted == dev.Trust && maps.Equal(last.Labels, dev.Labels) {
		return
	}
	heir := *dev
	heir.Trust, heir.Labels = trusted, last.Labels
	r.publish(at, &heir)
	r.keep(&heir)
}

// ours is a device as this node tells of it: with the node's name, and with a note
// if its name is another device's elsewhere and its owner wants it so.
func (r *roster) ours(dev *ferrule.Device) *ferrule.Device {
	notes := slices.DeleteFunc(slices.Clone(dev.Notes), func(note string) bool { return strings.HasPrefix(note, namesake) })
	if at := r.slots[dev.Address]; at != nil && r.given[dev.ID] == dev.Address && r.taken(dev.ID, at.sighting) {
		notes = append(notes, fmt.Sprintf("%s%s on %s, and other nodes see that one: give one of the two another name",
			namesake, dev.ID, nodeOf(r.elsewhere(dev.ID))))
	}
	if dev.Node == r.node && slices.Equal(dev.Notes, notes) {
		return dev
	}
	told := *dev
	told.Node, told.Notes = r.node, notes
	return &told
}

// namesake begins the note about a name that two devices have.
const namesake = "another device is called "

// renote tells anew of a device if there is something else to note about its name.
func (r *roster) renote(at *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if dev := at.device.Load(); r.ours(dev) != dev {
		r.publish(at, dev)
	}
}

// notHere says that another node has a device, and what is decided about it is
// decided there; it is nil for what this node has, or nobody.
func (r *roster) notHere(id string) error {
	address := r.ids[id]
	s := &transport.Sighting{Address: address}
	if at := r.slots[address]; at != nil {
		if at.device.Load().State == ferrule.StateOnline {
			return nil
		}
		s = at.sighting
	}
	there := r.elsewhere(id)
	if there == nil || there.State != ferrule.StateOnline || !same(s, there) {
		return nil
	}
	return ferrule.Errorf(ferrule.Offline, "%s has %s", nodeOf(there), id).WithHint("do this on that node")
}
