package dock

import (
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ReplaceOverlays calls replace, which replaces the overlays, and publishes the devices
// whose effective manifest or notes are different then. They stay connected. It returns
// their IDs.
func (d *Dock) ReplaceOverlays(replace func()) []string { return d.registry.replaceOverlays(replace) }

func (r *registry) replaceOverlays(replace func()) (changed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	type known struct {
		dev      *ferrule.Device
		at       *slot // nil if the device is out of sight
		manifest *ferrule.Manifest
		notes    []string // of the overlays before
	}
	var all []known
	manifests := make(map[ferrule.Kind]*ferrule.Manifest) // read once for many devices
	for id := range r.effective {
		k := known{at: r.slots[r.ids[id]]}
		if k.at != nil {
			k.dev = k.at.device.Load()
		} else {
			k.dev, _ = r.store.Get(id)
		}
		if k.dev == nil || k.dev.ID != id || k.dev.Trust == ferrule.TrustPending { // overlays wait until it is adopted
			continue
		}
		if manifests[k.dev.Kind] == nil {
			manifests[k.dev.Kind], _ = r.store.Manifest(k.dev.Kind)
		}
		if k.manifest = manifests[k.dev.Kind]; k.manifest != nil {
			k.notes = r.overlays.UnknownTools(k.dev.Protocol, k.dev.Kind, id, k.manifest)
			all = append(all, k)
		}
	}
	replace()
	for _, k := range all {
		effective := r.overlays.Apply(k.dev.Protocol, k.dev.Kind, k.dev.ID, k.manifest)
		notes := r.overlays.UnknownTools(k.dev.Protocol, k.dev.Kind, k.dev.ID, k.manifest)
		if effective == r.effective[k.dev.ID] && slices.Equal(notes, k.notes) {
			continue
		}
		r.effective[k.dev.ID] = effective
		dev := *r.keepSensor(k.dev)
		dev.Notes = slices.Concat(slices.DeleteFunc(slices.Clone(dev.Notes), func(note string) bool { return slices.Contains(k.notes, note) }), notes)
		if k.at != nil {
			r.publish(k.at, &dev)
		} else {
			r.publishAbsent(&dev)
		}
		r.storeDevice(&dev)
		changed = append(changed, dev.ID)
	}
	slices.Sort(changed)
	return changed
}
