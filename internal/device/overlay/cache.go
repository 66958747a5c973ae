package overlay

import (
	"runtime"
	"sync"
	"weak"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Overlays is what a Cache needs. [Set] implements it.
type Overlays interface {
	Apply(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest
	MatchesDevice(device string) bool
	UnknownTools(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) []string
}

// Cache keeps effective manifests: one for each protocol and Kind, and one for
// each device that has an overlay of its own. An entry lives as long as somebody
// uses the manifest; then it is garbage. A Cache is safe for concurrent use, and
// a gateway has one.
type Cache struct {
	mu        sync.Mutex
	overlays  Overlays
	effective map[cacheKey]weak.Pointer[ferrule.Manifest]
}

type cacheKey struct {
	protocol string
	kind     ferrule.Kind
	device   string // empty unless the device has an overlay of its own
}

// NewCache returns an empty Cache in front of overlays.
func NewCache(overlays Overlays) *Cache {
	return &Cache{overlays: overlays, effective: make(map[cacheKey]weak.Pointer[ferrule.Manifest])}
}

// Replace replaces the overlays. Manifests that are the same under both stay, and are
// still shared. Users of others get the new one from Apply.
func (c *Cache) Replace(overlays *Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, comparable := c.overlays.(*Set)
	for key, effective := range c.effective {
		of := subject{protocol: key.protocol, kind: key.kind, device: key.device}
		if m := effective.Value(); m != nil {
			of.partOf = m.PartOf
		}
		if !comparable || !before.equalFor(overlays, of) {
			delete(c.effective, key)
		}
	}
	c.overlays = overlays
}

func (c *Cache) current() Overlays {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overlays
}

// MatchesDevice reports whether an overlay is for this device only.
func (c *Cache) MatchesDevice(device string) bool { return c.current().MatchesDevice(device) }

// UnknownTools returns the notes of [Set.UnknownTools].
func (c *Cache) UnknownTools(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) []string {
	return c.current().UnknownTools(protocol, kind, device, m)
}

// Apply returns the effective manifest for a device of this Kind. It computes it
// from m if no other device uses it; m must be the manifest of that Kind. The
// result is shared and read only. It has no notes, since they belong to the
// device.
func (c *Cache) Apply(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest {
	overlays, key, cached := c.get(protocol, kind, device)
	if cached != nil {
		return cached
	}
	effective := overlays.Apply(protocol, kind, key.device, m)
	effective.Notes = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.overlays != overlays {
		return effective // of the overlays before; the next Apply has the new one
	}
	if cached := c.effective[key].Value(); cached != nil {
		return cached // another goroutine was faster
	}
	c.effective[key] = weak.Make(effective)
	runtime.AddCleanup(effective, c.drop, key)
	return effective
}

// Lookup returns the effective manifest for a device of this Kind, or nil if none
// is in use.
func (c *Cache) Lookup(protocol string, kind ferrule.Kind, device string) *ferrule.Manifest {
	_, _, cached := c.get(protocol, kind, device)
	return cached
}

// get returns the present overlays, and the key and the manifest that are cached for a
// device under them.
func (c *Cache) get(protocol string, kind ferrule.Kind, device string) (Overlays, cacheKey, *ferrule.Manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.overlays.MatchesDevice(device) {
		device = ""
	}
	key := cacheKey{protocol, kind, device}
	return c.overlays, key, c.effective[key].Value()
}

// drop removes the entry of a manifest that is garbage, unless there is a new one.
func (c *Cache) drop(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.effective[key].Value() == nil {
		delete(c.effective, key)
	}
}
