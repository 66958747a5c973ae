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
	Overlays

	mu        sync.Mutex
	effective map[cacheKey]weak.Pointer[ferrule.Manifest]
}

type cacheKey struct {
	protocol string
	kind     ferrule.Kind
	device   string // empty unless the device has an overlay of its own
}

// NewCache returns an empty Cache in front of overlays.
func NewCache(overlays Overlays) *Cache {
	return &Cache{Overlays: overlays, effective: make(map[cacheKey]weak.Pointer[ferrule.Manifest])}
}

func (c *Cache) key(protocol string, kind ferrule.Kind, device string) cacheKey {
	if !c.MatchesDevice(device) {
		device = ""
	}
	return cacheKey{protocol, kind, device}
}

// Apply returns the effective manifest for a device of this Kind. It computes it
// from m if no other device uses it; m must be the manifest of that Kind. The
// result is shared and read only. It has no notes, since they belong to the
// device.
func (c *Cache) Apply(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest {
	key := c.key(protocol, kind, device)
	if cached := c.get(key); cached != nil {
		return cached
	}
	effective := c.Overlays.Apply(protocol, kind, key.device, m)
	effective.Notes = nil
	c.mu.Lock()
	defer c.mu.Unlock()
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
	return c.get(c.key(protocol, kind, device))
}

func (c *Cache) get(key cacheKey) *ferrule.Manifest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.effective[key].Value()
}

// drop removes the entry of a manifest that is garbage, unless there is a new one.
func (c *Cache) drop(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.effective[key].Value() == nil {
		delete(c.effective, key)
	}
}
