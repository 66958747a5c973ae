package mcpserver

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/thing"
)

// groups are sets of tools that are enabled and disabled together.
type groups struct {
	mu       sync.Mutex
	tools    map[string][]string // by group
	disabled map[string]bool
	offered  map[string]thing.Description // nil until the device is served
}

func newGroups() *groups {
	return &groups{tools: make(map[string][]string), disabled: make(map[string]bool)}
}

// hidden reports whether one of the groups of a tool is disabled.
func (g *groups) hidden(tool string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isHidden(tool)
}

func (g *groups) isHidden(tool string) bool {
	for group := range g.disabled {
		if slices.Contains(g.tools[group], tool) {
			return true
		}
	}
	return false
}

// endangers reports whether a tool can do harm.
func (g *groups) endangers(tool string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.offered[tool].Endangers
}

// Group declares a group of tools. A tool can be in several groups, and is offered
// while all of them are enabled. Groups must be declared before the device is served,
// and begin enabled.
func (d *Device) Group(name string, tools ...string) {
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	d.groups.tools[name] = append(d.groups.tools[name], tools...)
}

// Enable offers the tools of a group again, and notifies callers.
func (d *Device) Enable(group string) {
	g := d.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.disabled[group] {
		return
	}
	delete(g.disabled, group)
	for _, name := range g.tools[group] {
		if t, ok := g.offered[name]; ok && !g.isHidden(name) {
			d.server.AddTool(listed(t), d.callTool)
		}
	}
}

// Disable withdraws the tools of a group, and notifies callers. A call that has not
// begun is refused; a running call goes on.
func (d *Device) Disable(group string) {
	g := d.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tools[group] == nil {
		panic(fmt.Sprintf("mcpserver: unknown group %s", group))
	}
	g.disabled[group] = true
	d.server.RemoveTools(g.tools[group]...)
}

// Refresh offers the tools that were added to the device since it is served, withdraws
// those that were removed, and notifies callers if there are any. A tool that was replaced
// is offered as it is now. Cached results are dropped: they may be those of a tool that was
// removed or replaced, even by one with the same description.
func (d *Device) Refresh() {
	d.Invalidate()
	g := d.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.offered == nil {
		return // Handler offers them
	}
	before := g.offered
	d.offerChanged(before)
	var gone []string
	for name := range before {
		if _, ok := g.offered[name]; !ok {
			gone = append(gone, name)
		}
	}
	if gone != nil {
		d.server.RemoveTools(gone...)
	}
}

// offerChanged registers the tools that differ from those before with the SDK, except
// user-only tools: MCP cannot hide a tool from models.
func (d *Device) offerChanged(before map[string]thing.Description) {
	g := d.groups
	g.offered = make(map[string]thing.Description)
	for _, t := range d.Tools() {
		if t.UserOnly {
			continue
		}
		g.offered[t.Name] = t
		if was, known := before[t.Name]; !g.isHidden(t.Name) && (!known || !reflect.DeepEqual(was, t)) {
			d.server.AddTool(listed(t), d.callTool)
		}
	}
}

// offerTools registers the declared tools with the SDK.
func (d *Device) offerTools() {
	g := d.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	d.offerChanged(nil)
	for group, tools := range g.tools {
		for _, name := range tools {
			if _, ok := g.offered[name]; !ok {
				panic(fmt.Sprintf("mcpserver: group %s has a tool %s that the device does not have", group, name))
			}
		}
	}
}
