// Package catalog decides what agents see: which tools are listed, under which names,
// and how all others are found.
//
//	fleet ──Put, Remove──▶ groups    devices that share an effective manifest
//	                         │
//	                         ├──▶ Resolve   the device and tool of a name
//	                         ├──▶ Run       reports changes, in batches
//	                         └──▶ As        what one caller sees
//	                                ├──▶ List      the tools in tools/list
//	                                └──▶ Find…     search by words
//
// The list has one of three shapes. While the tools of all devices fit the budget, each
// is listed:
//
//	robot__gpio_write
//
// Above the budget, the tools of one Kind are folded, and take the device as an argument:
//
//	sim-board--3fa9c1__gpio_write(device, …)
//
// If that exceeds the budget as well, the list is a constant set of tools that search,
// describe and call all others. A Kind that exceeds the budget on its own is never
// listed, and does not count for the others. Every name can be called, whatever the list
// shows.
//
// The policy may hide tools and devices from a caller. The list then has the same shape
// without them. A folded tool stays while it is shown for at least one of its devices.
//
// The cost of a change grows with the number of Kinds, not of devices. A search works on
// a snapshot and blocks nobody.
package catalog

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config configures the catalog.
type Config struct {
	// Budget is the maximum number of device tools in the list.
	Budget int
	// Grace is how long the tools of a device that went offline stay in the list.
	Grace time.Duration
}

// DefaultConfig suits the clients with the lowest limits.
func DefaultConfig() Config { return Config{Budget: 40, Grace: 30 * time.Second} }

// Check returns the first problem of the config.
func (c Config) Check() error {
	if c.Budget < 0 {
		return errors.New("budget: must be at least 0")
	}
	return nil
}

// Catalog is the view that agents have of a fleet. It is safe for concurrent use.
type Catalog struct {
	config Config
	wake   chan struct{} // has an element if something changed since Run looked

	mu           sync.RWMutex
	own          *entry            // the gateway; nil until Put
	measureTools *group            // its tools for measured values; nil if it has none
	measuring    int               // number of devices with measured values
	away         map[string]bool   // offline devices whose tools are still listed
	expiring     *time.Timer       // set while there are any
	devices      map[string]*entry // by ID, including pending ones
	aliases      map[string]string // ID by earlier ID
	order        order             // devices that agents may see
	counts       Counts
	groups       map[*ferrule.Manifest]*group
	kinds        map[ferrule.Kind]int // number of groups
	folds        map[string][]*group  // groups by folded prefix
	list         []ferrule.Offer      // nil if it must be rebuilt
	shape        Shape                // of list
	// visible returns what a caller sees; nil if everybody sees everything.
	visible    func(who ferrule.Principal) ferrule.Visibility
	generation uint64 // grows with each change that may matter to a policy

	shown shownLists
}

// entry is one device. It is immutable, because searches use it without a lock.
type entry struct {
	id       string // device.ID, for speed
	device   *ferrule.Device
	manifest *ferrule.Manifest
	group    *group // nil unless online, or away for a moment
}

// Counts has numbers of devices.
type Counts struct {
	Online, Offline, Released int
	Pending                   int
	Kinds                     int // of online devices
}

// New returns an empty catalog.
func New(config Config) *Catalog {
	return &Catalog{
		config:  config,
		wake:    make(chan struct{}, 1),
		devices: make(map[string]*entry),
		away:    make(map[string]bool),
		aliases: make(map[string]string),
		groups:  make(map[*ferrule.Manifest]*group),
		kinds:   make(map[ferrule.Kind]int),
		folds:   make(map[string][]*group),
	}
}

// anyAgent stands for all agents: each sees the same.
var anyAgent = ferrule.Principal{Role: ferrule.Agent}

// Put adds or updates a device.
func (c *Catalog) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dev.ID == ferrule.GatewayID {
		c.own, c.measureTools = &entry{dev.ID, dev, m, newGroup(dev.Kind, m)}, measureToolsOf(dev.Kind, m)
		c.changed()
		return
	}
	before := c.devices[dev.ID]
	if before != nil && before.device.State == dev.State && before.device.Trust == dev.Trust && before.manifest == m {
		c.dropAliases(before)
		c.keep(&entry{dev.ID, dev, m, before.group}) // the list stays the same
		alike := ruledAlike(before.device, dev)
		if !alike { // but not for every caller
			c.generation++
		}
		if !before.device.Since.Equal(dev.Since) || !alike && c.visible != nil {
			c.wakeRun() // it has reconnected: subscriptions there are gone
		}
		return
	}
	c.replace(dev, m)
}

// ruledAlike reports whether a policy cannot tell two records of a device apart.
func ruledAlike(a, b *ferrule.Device) bool {
	return maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Aliases, b.Aliases) && a.Node == b.Node && a.Kind == b.Kind &&
		a.Model == b.Model && a.Version == b.Version && a.Transport == b.Transport && a.Protocol == b.Protocol
}

// replace adds a device, and removes the previous record. It is called with mu held.
func (c *Catalog) replace(dev *ferrule.Device, m *ferrule.Manifest) {
	c.remove(dev.ID)
	*c.counts.of(dev)++
	c.measuring += measures(dev, m)
	e := &entry{id: dev.ID, device: dev, manifest: m}
	away := dev.State == ferrule.StateOffline && c.graceLeft(dev) > 0
	if anyAgent.CanSee(dev) && (dev.State == ferrule.StateOnline || away) && m != nil {
		e.group = c.groupOf(dev.Kind, m)
	}
	c.keep(e)
	if away && e.group != nil {
		c.away[dev.ID] = true
		c.expireLater(c.graceLeft(dev))
	}
	c.changed()
}

// graceLeft returns how much longer the tools of a device that is offline are listed.
func (c *Catalog) graceLeft(dev *ferrule.Device) time.Duration {
	return time.Until(dev.Since.Add(c.config.Grace))
}

// expireLater starts a timer, unless one runs. It is called with mu held.
func (c *Catalog) expireLater(wait time.Duration) {
	if c.expiring == nil {
		c.expiring = time.AfterFunc(max(wait, expireEvery), c.expire)
	}
}

// expireEvery is the shortest time between two looks at devices that are away: there may
// be many.
const expireEvery = time.Second

// expire removes the tools of devices that stayed away from the list.
func (c *Catalog) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expiring = nil
	next := c.config.Grace
	for id := range c.away {
		e := c.devices[id]
		if left := c.graceLeft(e.device); left > 0 {
			next = min(next, left)
		} else {
			c.replace(e.device, e.manifest)
		}
	}
	if len(c.away) > 0 {
		c.expireLater(next)
	}
}

func (c *Catalog) keep(e *entry) {
	c.devices[e.id] = e
	for _, alias := range e.device.Aliases {
		c.aliases[alias] = e.id
	}
	if anyAgent.CanSee(e.device) {
		c.order.put(e)
	}
	if e.group != nil {
		e.group.members.put(e)
	}
}

// Remove removes a device.
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
	delete(c.away, id)
	c.dropAliases(e)
	*c.counts.of(e.device)--
	c.measuring -= measures(e.device, e.manifest)
	if anyAgent.CanSee(e.device) {
		c.order.remove(id)
	}
	if g := e.group; g != nil {
		if g.members.remove(id); g.members.length == 0 {
			c.drop(g)
		}
	}
	return true
}

// dropAliases forgets the earlier IDs of a device.
func (c *Catalog) dropAliases(e *entry) {
	for _, alias := range e.device.Aliases {
		if c.aliases[alias] == e.id {
			delete(c.aliases, alias)
		}
	}
}

// of returns the counter for a device.
func (n *Counts) of(dev *ferrule.Device) *int {
	switch {
	case !anyAgent.CanSee(dev):
		return &n.Pending
	case dev.State == ferrule.StateOnline:
		return &n.Online
	case dev.State == ferrule.StateReleased:
		return &n.Released
	}
	return &n.Offline
}

// groupOf returns the group of devices with that manifest.
func (c *Catalog) groupOf(kind ferrule.Kind, m *ferrule.Manifest) *group {
	g := c.groups[m]
	if g == nil {
		g = newGroup(kind, m)
		c.groups[m] = g
		c.kinds[kind]++
		for _, prefix := range []string{g.short, g.long} {
			c.folds[prefix] = append(c.folds[prefix], g)
		}
	}
	return g
}

// drop removes a group without members.
func (c *Catalog) drop(g *group) {
	delete(c.groups, g.manifest)
	if c.kinds[g.kind]--; c.kinds[g.kind] == 0 {
		delete(c.kinds, g.kind)
	}
	for _, prefix := range []string{g.short, g.long} {
		c.folds[prefix] = slices.DeleteFunc(c.folds[prefix], func(other *group) bool { return other == g })
		if len(c.folds[prefix]) == 0 {
			delete(c.folds, prefix)
		}
	}
}

// folded returns the group with that prefix. Several can have the same one: overlays on
// some devices split a Kind, and a device can imitate another. The largest group wins.
func (c *Catalog) folded(prefix string) *group {
	var largest *group
	for _, g := range c.folds[prefix] {
		if largest == nil || cmp.Or(cmp.Compare(g.members.length, largest.members.length), cmp.Compare(largest.fingerprint, g.fingerprint)) > 0 {
			largest = g
		}
	}
	return largest
}

// prefixOf returns the prefix of folded tools of a group.
func (c *Catalog) prefixOf(g *group) string {
	if c.folded(g.short).fingerprint == g.fingerprint {
		return g.short
	}
	return g.long
}

// changed invalidates the list and wakes Run. It is called with mu held.
func (c *Catalog) changed() {
	c.list = nil
	c.generation++
	c.wakeRun()
}

func (c *Catalog) wakeRun() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Counts returns numbers of devices.
func (c *Catalog) Counts() Counts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.counts
	n.Kinds = len(c.kinds)
	return n
}

// CountsFor returns the numbers of the devices that the credential of a caller is good for.
func (c *Catalog) CountsFor(who ferrule.Principal) (n Counts) {
	if who.Devices == "" {
		return c.Counts()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	kinds := make(map[ferrule.Kind]bool)
	for _, e := range c.devices {
		if !who.Reaches(e.device) || e.id == ferrule.GatewayID {
			continue
		}
		*n.of(e.device)++
		if e.group != nil {
			kinds[e.device.Kind] = true
		}
	}
	n.Kinds = len(kinds)
	return n
}

// Lookup returns a device that agents may see, by its ID or an earlier one, or the gateway, with its effective
// manifest, which is nil if the device was never reached.
func (c *Catalog) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	e := c.entry(id)
	if e == nil {
		return nil, nil, false
	}
	return e.device, e.manifest, true
}

// Listed reports whether the tools of a device are listed: it is online, or away for a
// moment.
func (c *Catalog) Listed(id string) bool {
	e := c.entry(id)
	return e != nil && e.group != nil
}

// entry returns a device that agents may see, by its ID or an earlier one, or the gateway,
// or nil.
func (c *Catalog) entry(id string) *entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.devices[id]
	if e == nil {
		e = c.devices[c.aliases[id]]
	}
	if id == ferrule.GatewayID {
		e = c.own
	}
	if e == nil || !anyAgent.CanSee(e.device) {
		return nil
	}
	return e
}

// byName is the order of offers in lists.
func byName(a, b ferrule.Offer) int { return cmp.Compare(a.Name, b.Name) }
