package catalog

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// View is the catalog as one caller sees it: without what the policy forbids to that
// caller. The shape of the list is that of the whole catalog.
type View struct {
	c    *Catalog
	who  ferrule.Principal
	seen ferrule.Visibility
}

// maxChecked limits for how many devices of one Kind, or of a page, a View asks what it
// shows. What is not asked for is not shown.
const maxChecked = 1024

// ShowTo sets what callers see. If visible is nil, each sees everything.
func (c *Catalog) ShowTo(visible func(who ferrule.Principal) ferrule.Visibility) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.visible = visible
	c.generation++
	c.wakeRun()
}

// As returns the catalog as a caller sees it. Logins that permit the same see the same, so
// they share lists.
func (c *Catalog) As(who ferrule.Principal) View {
	who.TokenID = ""
	c.mu.RLock()
	visible := c.visible
	c.mu.RUnlock()
	if visible == nil {
		return View{c: c, who: who}
	}
	return View{c: c, who: who, seen: visible(who)}
}

// All returns the catalog as it is before the policy is asked.
func (c *Catalog) All() View { return View{c: c} }

// Restricted reports whether anything may be hidden from the caller.
func (v View) Restricted() bool { return v.seen.Shows != nil }

// Caller returns whose view it is.
func (v View) Caller() ferrule.Principal { return v.who }

// List returns the listed tools, sorted by name, and the shape. The result is shared and
// read-only. It is the list of all agents, unless something of it is hidden.
func (v View) List() ([]ferrule.Offer, Shape) {
	all, shape, generation := v.c.current()
	if !v.Restricted() {
		return all, shape
	}
	return v.c.shown.list(v, all, generation), shape
}

// shows reports whether an offer is shown: its tool may be used on its device, or on one
// of its devices.
func (v View) shows(o ferrule.Offer) bool {
	switch {
	case !v.Restricted() || o.Name == callTool.Name: // the policy decides on the called tool
		return true
	case o.Argument == "":
		e := v.c.entry(o.Devices[0])
		return e != nil && v.seen.Tool(e.device, o.Tool)
	}
	prefix, _, _ := strings.Cut(o.Name, separator)
	return v.any(v.c.membersOf(prefix), o.Tool)
}

// any reports whether a tool is shown for at least one of the devices of a group.
func (v View) any(members snapshot, tool *ferrule.Tool) bool {
	if !v.Restricted() {
		return true
	}
	left := maxChecked
	for e := range members.from("") {
		if left--; left < 0 {
			break
		}
		if v.seen.Tool(e.device, tool) {
			return true
		}
	}
	return false
}

// membersOf returns the devices that share folded tools with that prefix.
func (c *Catalog) membersOf(prefix string) (members snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.folded(prefix); g != nil {
		members = g.members.take()
	}
	return members
}

// entry returns a device that is shown, or nil.
func (v View) entry(id string) *entry {
	e := v.c.entry(id)
	if e == nil || id != ferrule.GatewayID && !v.seen.Device(e.device, e.manifest) {
		return nil
	}
	return e
}

// Lookup is Catalog.Lookup for a device that is shown.
func (v View) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	e := v.entry(id)
	if e == nil {
		return nil, nil, false
	}
	return e.device, e.manifest, true
}

// Shows reports whether a resource or a prompt of a device is shown.
func (v View) Shows(id string, op ferrule.Operation, name string) bool {
	e := v.c.entry(id)
	return e != nil && e.manifest != nil && v.seen.Item(e.device, e.manifest, op, name)
}

// Tool returns a device, and its tool with that own name. The tool is nil if it cannot be
// used, or is not shown.
func (v View) Tool(id, name string) (*ferrule.Device, *ferrule.Tool) {
	e := v.entry(id)
	if e == nil || e.manifest == nil {
		return nil, nil
	}
	t := e.manifest.Tool(name)
	if t == nil || t.Quarantine != "" || !v.who.CanCall(t) || !v.seen.Tool(e.device, t) {
		return e.device, nil
	}
	return e.device, t
}

// Of returns the tools of one device under their own names, made portable for all
// clients. It is empty unless the device is online.
func (v View) Of(id string) []ferrule.Offer {
	list := []ferrule.Offer{}
	e := v.c.entry(id)
	if e == nil || e.group == nil {
		return list
	}
	for i, name := range e.group.namesFor("") {
		if v.seen.Tool(e.device, e.group.tools[i]) {
			list = append(list, e.group.offerOn(e.device, i, name))
		}
	}
	slices.SortFunc(list, byName)
	return list
}

// Devices returns up to limit devices, in the order of IDs.
func (v View) Devices(limit int) []*ferrule.Device {
	var all []*ferrule.Device
	for _, e := range v.devices(v.c.all(), "", limit) {
		all = append(all, e.device)
	}
	return all
}

// Complete returns up to limit device IDs with a prefix, and the total number, as far as
// it is known.
func (v View) Complete(prefix string, limit int) (ids []string, total int) {
	all := v.c.all()
	found := v.devices(all, prefix, limit+1)
	for _, e := range found[:min(limit, len(found))] {
		ids = append(ids, e.id)
	}
	if v.Restricted() {
		return ids, len(found)
	}
	return ids, all.count(prefix)
}

// devices returns up to limit devices that are shown and whose IDs have a prefix, in order.
func (v View) devices(all snapshot, prefix string, limit int) (found []*entry) {
	left := maxChecked
	for e := range all.from(prefix) {
		if len(found) >= limit || !strings.HasPrefix(e.id, prefix) {
			break
		}
		if v.Restricted() {
			if left--; left < 0 {
				break
			}
			if !v.seen.Device(e.device, e.manifest) {
				continue
			}
		}
		found = append(found, e)
	}
	return found
}

// all returns a snapshot of the devices that agents may know.
func (c *Catalog) all() snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.take()
}

// describe adds the devices to a folded offer for which it is shown.
func (v View) describe(o ferrule.Offer, members snapshot) ferrule.Offer {
	const limit = 10
	checked := 0
	for e := range members.from("") {
		if !v.Restricted() && len(o.Devices) == limit || checked == maxChecked {
			break
		}
		if checked++; !v.seen.Tool(e.device, o.Tool) {
			continue
		}
		if o.Count++; len(o.Devices) < limit {
			o.Devices = append(o.Devices, e.id)
		}
	}
	if o.Count == checked { // nothing was hidden so far
		o.Count = members.length
	}
	return o
}

// shownLists keeps the lists of callers from whom something is hidden, until the catalog
// or the policy changes.
type shownLists struct {
	mu         sync.Mutex
	generation uint64 // of the catalog
	version    string // of the policy
	made       time.Time
	lists      map[ferrule.Principal][]ferrule.Offer
}

// Limits of kept lists. A rule may depend on the time, so they are not kept for long.
const (
	maxShownLists = 256
	shownListAge  = 5 * time.Second
)

// list returns the offers of a list that are shown. If that is all of them, it is the list
// itself.
func (s *shownLists) list(v View, all []ferrule.Offer, generation uint64) []ferrule.Offer {
	s.mu.Lock()
	if s.generation != generation || s.version != v.seen.Version || len(s.lists) >= maxShownLists || time.Since(s.made) > shownListAge {
		s.generation, s.version, s.made = generation, v.seen.Version, time.Now()
		s.lists = make(map[ferrule.Principal][]ferrule.Offer)
	}
	list, ok := s.lists[v.who]
	s.mu.Unlock()
	if ok {
		return list
	}
	list = all
	for i, o := range all {
		switch shown := v.shows(o); {
		case shown && len(list) < len(all):
			list = append(list, o)
		case !shown && len(list) == len(all):
			list = slices.Clone(all[:i])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation == generation && s.version == v.seen.Version {
		s.lists[v.who] = list
	}
	return list
}
