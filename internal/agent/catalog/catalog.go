// Package catalog is what agents see: which tools stand in their list, under
// which names, and how the others are found.
//
//	fleet ──Put, Remove──▶ groups    devices that share a laid manifest
//	                         │
//	                         ├──▶ List      what stands in the list
//	                         ├──▶ Resolve   what a name means
//	                         ├──▶ Find…     what is there, by words
//	                         └──▶ Run       tells of changes, in batches
//
// The list has one of three shapes. While the tools of all devices fit the
// budget, it is each of them:
//
//	robot__gpio_write
//
// Above it, devices of one Kind are folded, and a call says which one it means:
//
//	sim-board--3fa9c1__gpio_write(device, …)
//
// If that is above the budget as well, it is always the same few tools, which
// find, describe and call all others. A Kind that is above the budget on its own
// never stands in the list, and takes no place from the others. Whatever the
// list shows, each of these names can be called.
//
// What a change costs grows with the number of Kinds and not of devices. A search
// looks at all devices as they were when it began, and nobody waits for it.
package catalog

import (
	"cmp"
	"errors"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config is what can be set about the catalog.
type Config struct {
	// Budget is how many tools of devices may stand in the list.
	Budget int
}

// DefaultConfig suits the clients that show least.
func DefaultConfig() Config { return Config{Budget: 40} }

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if c.Budget < 0 {
		return errors.New("budget: want 0 or more")
	}
	return nil
}

// Catalog is what agents see of a fleet. It is safe for use by many goroutines.
type Catalog struct {
	config Config
	wake   chan struct{} // holds something if there was a change since Run looked

	mu      sync.RWMutex
	own     *entry            // the gateway; nil until it is put
	past    *group            // its tools that tell what was measured; nil if it has none
	measure int               // how many devices measure something
	devices map[string]*entry // by ID, held ones too
	order   order             // those that agents may know of
	counts  Counts
	groups  map[*ferrule.Manifest]*group
	kinds   map[ferrule.Kind]int       // how many groups are of each
	folds   map[string]map[*group]bool // groups by what may stand before their tools
	list    []ferrule.Offer            // nil if it has to be made anew
	shape   Shape                      // of list
}

// entry is one device. It never changes: searches look at it while others come.
type entry struct {
	id       string // the device's: it is looked at often
	device   *ferrule.Device
	manifest *ferrule.Manifest
	group    *group // nil unless it is online
}

// Counts is how many devices there are, by what agents have of them.
type Counts struct {
	Online, Offline, Released int
	Pending                   int // wait to be adopted
	Kinds                     int // of those that are online
}

// New makes a catalog.
func New(config Config) *Catalog {
	return &Catalog{
		config:  config,
		wake:    make(chan struct{}, 1),
		devices: make(map[string]*entry),
		groups:  make(map[*ferrule.Manifest]*group),
		kinds:   make(map[ferrule.Kind]int),
		folds:   make(map[string]map[*group]bool),
	}
}

// anAgent is whom the catalog is for: every agent sees the same.
var anAgent = ferrule.Principal{Role: ferrule.Agent}

// Put takes in a device, or what is new about it.
func (c *Catalog) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dev.ID == ferrule.GatewayID {
		c.own, c.past = &entry{dev.ID, dev, m, newGroup(dev.Kind, m)}, pastOf(dev.Kind, m)
		c.changed()
		return
	}
	before := c.devices[dev.ID]
	if before != nil && before.device.State == dev.State && before.device.Trust == dev.Trust && before.manifest == m {
		c.keep(&entry{dev.ID, dev, m, before.group}) // nothing that a list would show
		return
	}
	c.remove(dev.ID)
	*c.counts.of(dev)++
	c.measure += measures(dev, m)
	e := &entry{id: dev.ID, device: dev, manifest: m}
	if anAgent.CanSee(dev) && dev.State == ferrule.StateOnline && m != nil {
		e.group = c.groupOf(dev.Kind, m)
	}
	c.keep(e)
	c.changed()
}

// keep puts an entry where it is found.
func (c *Catalog) keep(e *entry) {
	c.devices[e.id] = e
	if anAgent.CanSee(e.device) {
		c.order.put(e)
	}
	if e.group != nil {
		e.group.members.put(e)
	}
}

// Remove takes a device out.
func (c *Catalog) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.remove(id) {
		c.changed()
	}
}

func (c *Catalog) remove(id string) bool {
	e := c.devices[id]
	if e == nil {
		return false
	}
	delete(c.devices, id)
	*c.counts.of(e.device)--
	c.measure -= measures(e.device, e.manifest)
	if anAgent.CanSee(e.device) {
		c.order.remove(id)
	}
	if g := e.group; g != nil {
		if g.members.remove(id); g.members.length == 0 {
			c.drop(g)
		}
	}
	return true
}

// of is the count that a device belongs to.
func (n *Counts) of(dev *ferrule.Device) *int {
	switch {
	case !anAgent.CanSee(dev):
		return &n.Pending
	case dev.State == ferrule.StateOnline:
		return &n.Online
	case dev.State == ferrule.StateReleased:
		return &n.Released
	}
	return &n.Offline
}

// groupOf is the group of those that share a manifest.
func (c *Catalog) groupOf(kind ferrule.Kind, m *ferrule.Manifest) *group {
	g := c.groups[m]
	if g == nil {
		g = newGroup(kind, m)
		c.groups[m] = g
		c.kinds[kind]++
		for _, prefix := range []string{g.short, g.long} {
			if c.folds[prefix] == nil {
				c.folds[prefix] = make(map[*group]bool)
			}
			c.folds[prefix][g] = true
		}
	}
	return g
}

// drop forgets a group that has no members.
func (c *Catalog) drop(g *group) {
	delete(c.groups, g.manifest)
	if c.kinds[g.kind]--; c.kinds[g.kind] == 0 {
		delete(c.kinds, g.kind)
	}
	for _, prefix := range []string{g.short, g.long} {
		if delete(c.folds[prefix], g); len(c.folds[prefix]) == 0 {
			delete(c.folds, prefix)
		}
	}
}

// folded is the group that a prefix means. One Kind may have several, if something
// is laid on some of its devices, and a device can be made to look like another:
// the prefix is that of the most devices.
func (c *Catalog) folded(prefix string) *group {
	var most *group
	for g := range c.folds[prefix] {
		if most == nil || cmp.Or(cmp.Compare(g.members.length, most.members.length), cmp.Compare(most.print, g.print)) > 0 {
			most = g
		}
	}
	return most
}

// prefixOf is what stands before the tools of a group where they are folded.
func (c *Catalog) prefixOf(g *group) string {
	if c.folded(g.short).print == g.print {
		return g.short
	}
	return g.long
}

// changed notes that the list may be another. It is called with mu held.
func (c *Catalog) changed() {
	c.list = nil
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Counts tells how many devices there are.
func (c *Catalog) Counts() Counts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.counts
	n.Kinds = len(c.kinds)
	return n
}

// Lookup returns a device that agents may know of, or the gateway, and its laid
// manifest, which is nil if it was never reached.
func (c *Catalog) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	e := c.entry(id)
	if e == nil {
		return nil, nil, false
	}
	return e.device, e.manifest, true
}

// entry finds a device that agents may know of, or the gateway.
func (c *Catalog) entry(id string) *entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.devices[id]
	if id == ferrule.GatewayID {
		e = c.own
	}
	if e == nil || !anAgent.CanSee(e.device) {
		return nil
	}
	return e
}

// Devices lists devices that agents may know of, by ID: those behind after, limit
// at most.
func (c *Catalog) Devices(after string, limit int) []*ferrule.Device {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.order.behind(after, limit)
}

// Complete lists the IDs of devices that begin with prefix: limit at most, and
// how many there are.
func (c *Catalog) Complete(prefix string, limit int) (ids []string, total int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	total = c.order.count(prefix)
	for e := range c.order.from(prefix) {
		if len(ids) >= min(limit, total) {
			break
		}
		ids = append(ids, e.id)
	}
	return ids, total
}

// byName orders offers as they stand in lists.
func byName(a, b ferrule.Offer) int { return cmp.Compare(a.Name, b.Name) }
