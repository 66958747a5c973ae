package dock

import (
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// kinds holds the laid manifest of every Kind in use, once, however many devices
// are of it. A device that something is laid on alone has one of its own.
type kinds struct {
	overlays Overlays

	mu      sync.Mutex
	laid    map[kindKey]*kindUse
	devices map[string]kindKey // by ID
}

type kindKey struct {
	dialect string
	kind    ferrule.Kind
	device  string // empty for all that share
}

type kindUse struct {
	manifest *ferrule.Manifest
	devices  int
}

func newKinds(overlays Overlays) *kinds {
	return &kinds{overlays: overlays, laid: make(map[kindKey]*kindUse), devices: make(map[string]kindKey)}
}

// shared returns the laid manifest for devices of a Kind, and makes it of m if
// there is none. That can take a while, and keeps nobody else from theirs.
func (k *kinds) shared(dialect string, kind ferrule.Kind, m *ferrule.Manifest) *ferrule.Manifest {
	k.mu.Lock()
	u := k.laid[kindKey{dialect, kind, ""}]
	k.mu.Unlock()
	if u != nil {
		return u.manifest
	}
	return k.lay(dialect, kind, "", m)
}

func (k *kinds) lay(dialect string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest {
	laid := k.overlays.Apply(dialect, kind, device, m)
	laid.Notes = nil // they are of the device
	return laid
}

// use makes a device of its Kind, and returns its laid manifest: what the others
// of the Kind use, else shared; or one of its own, made of m.
func (k *kinds) use(dev *ferrule.Device, m, shared *ferrule.Manifest) *ferrule.Manifest {
	key := kindKey{dev.Protocol, dev.Kind, ""}
	if k.overlays.MatchesDevice(dev.ID) {
		key.device = dev.ID
		shared = k.lay(dev.Protocol, dev.Kind, dev.ID, m)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.laid[key]
	if u == nil {
		u = &kindUse{manifest: shared}
		k.laid[key] = u
	}
	if k.devices[dev.ID] != key {
		u.devices++
		k.drop(dev.ID)
		k.devices[dev.ID] = key
	}
	return u.manifest
}

// of returns the laid manifest that a device uses, or nil.
func (k *kinds) of(id string) *ferrule.Manifest {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u := k.laid[k.devices[id]]; u != nil {
		return u.manifest
	}
	return nil
}

// forget tells that a device is gone for good.
func (k *kinds) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(id)
}

// drop takes a device from its Kind, and the manifest with the last of them.
func (k *kinds) drop(id string) {
	key, ok := k.devices[id]
	if !ok {
		return
	}
	delete(k.devices, id)
	u := k.laid[key]
	if u.devices--; u.devices == 0 {
		delete(k.laid, key)
	}
}
