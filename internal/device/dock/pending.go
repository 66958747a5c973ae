package dock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Anybody can be a pending device, any number of times. So the gateway keeps little of
// one until its owner adopts it.
const (
	// maxPendingManifest is the size of the largest manifest that is kept whole, on
	// disk. A larger one is read again after the device was adopted.
	maxPendingManifest = 64 << 10
	// maxOutline is the size of the names and texts that are shown of one device.
	maxOutline = 32 << 10
	// maxPending is the size of all of that together.
	maxPending = 8 << 20
	// maxPendingNotes and maxPendingNote limit the notes about one device.
	maxPendingNotes, maxPendingNote = 4, 200
	// maxStrangers is the number of pending devices that dialed in and are greeted
	// concurrently; maxFoundStrangers is that of others, whose messages may be longer;
	// maxLargeStrangers is the number of those that may send a manifest larger than
	// maxPendingManifest. One that takes longer than strangerTime makes room for the
	// next.
	maxStrangers      = 64
	maxFoundStrangers = 8
	maxLargeStrangers = 2
	strangerTime      = 15 * time.Second
)

// outlines holds what is shown of pending devices: the names and texts of their tools,
// without schemas. Devices of one Kind share it. It is guarded by the registry's mu.
type outlines struct {
	kinds map[ferrule.Kind]*outline
	ids   map[string]ferrule.Kind
	size  int
}

type outline struct {
	manifest *ferrule.Manifest
	size     int // of it, and of the manifest on disk
	devices  int
	whole    bool // the manifest may be stored
}

func newOutlines() *outlines {
	return &outlines{kinds: make(map[ferrule.Kind]*outline), ids: make(map[string]ferrule.Kind)}
}

// add returns the outline of a pending device, which is nil if there are too many, and
// a note if something is missing. It reports whether the manifest may be stored.
func (o *outlines) add(dev *ferrule.Device, m *ferrule.Manifest) (shown *ferrule.Manifest, store bool, note string) {
	o.remove(dev.ID)
	known := o.kinds[dev.Kind]
	if known == nil {
		known = newOutline(m)
		if o.size+known.size > maxPending {
			return nil, false, fmt.Sprintf("too many devices wait to be adopted; to see its tools, run `ferrule adopt %s`", dev.ID)
		}
		o.kinds[dev.Kind] = known
		o.size += known.size
	}
	known.devices++
	o.ids[dev.ID] = dev.Kind
	if !known.whole {
		note = fmt.Sprintf("its description is long; to see all of it, run `ferrule adopt %s`", dev.ID)
	}
	return known.manifest, known.whole, note
}

// remove removes the outline of a device. It reports whether there was one.
func (o *outlines) remove(id string) bool {
	kind, ok := o.ids[id]
	if !ok {
		return false
	}
	delete(o.ids, id)
	known := o.kinds[kind]
	if known.devices--; known.devices == 0 {
		delete(o.kinds, kind)
		o.size -= known.size
	}
	return true
}

func newOutline(m *ferrule.Manifest) *outline {
	shown := &ferrule.Manifest{Model: m.Model, Version: m.Version, Platform: m.Platform, Title: m.Title, Instructions: m.Instructions}
	const overhead = 256 // of a tool or a pin, in bytes
	size := overhead + len(m.Instructions)
	for _, t := range m.Tools {
		if size += overhead + len(t.Name) + len(t.Title) + len(t.Text) + len(t.Quarantine); size > maxOutline {
			break
		}
		shown.Tools = append(shown.Tools, ferrule.Tool{
			Name: t.Name, Title: t.Title, Text: t.Text, Effect: cmp.Or(t.Effect, ferrule.Changes),
			Idempotent: t.Idempotent, UserOnly: t.UserOnly, Quarantine: t.Quarantine,
		})
	}
	for _, p := range m.Pins {
		if size += overhead + len(p.Name) + len(p.Type) + len(p.Text); size > maxOutline {
			break
		}
		shown.Pins = append(shown.Pins, ferrule.Pin{Number: p.Number, Name: p.Name, Type: p.Type, Text: p.Text})
	}
	o := &outline{manifest: shown, size: min(size, maxOutline), whole: size <= maxOutline}
	data, err := json.Marshal(m)
	if o.whole = o.whole && err == nil && len(data) <= maxPendingManifest; o.whole {
		o.size += len(data)
	}
	return o
}

// pendingNotes limits the notes about a pending device.
func pendingNotes(notes []string) (kept []string) {
	for _, note := range notes[:min(len(notes), maxPendingNotes)] {
		kept = append(kept, ferrule.Clean(note, maxPendingNote))
	}
	return kept
}
