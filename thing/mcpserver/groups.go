package mcpserver

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/thing"
)

// groups are tools that come and go together.
type groups struct {
	mu       sync.Mutex
	tools    map[string][]string // by group
	disabled map[string]bool
	offered  map[string]thing.Description // once the device is served
}

func newGroups() *groups {
	return &groups{tools: make(map[string][]string), disabled: make(map[string]bool)}
}

// hidden tells whether one of the groups of a tool is disabled.
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

// endangers tells whether a tool can do harm.
func (g *groups) endangers(tool string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.offered[tool].Endangers
}

// Group makes tools come and go together. A tool can be in several groups, and is
// there while all of them are enabled. Groups are made before the device is served,
// and are enabled.
func (d *Device) Group(name string, tools ...string) {
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	d.groups.tools[name] = append(d.groups.tools[name], tools...)
}

// Enable brings the tools of a group back, and callers are told.
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

// Disable takes the tools of a group away, and callers are told. A call that has not
// begun is refused; one that runs goes on.
func (d *Device) Disable(group string) {
	g := d.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tools[group] == nil {
		panic(fmt.Sprintf("mcpserver: there is no group %s", group))
	}
	g.disabled[group] = true
	d.server.RemoveTools(g.tools[group]...)
}

// offerTools puts the tools that were declared where the SDK finds them. Those for
// people are not among them: MCP has no word that keeps models from them.
func (d *Device) offerTools() {
	g := d.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offered = make(map[string]thing.Description)
	for _, t := range d.Tools() {
		if t.UserOnly {
			continue
		}
		g.offered[t.Name] = t
		if !g.isHidden(t.Name) {
			d.server.AddTool(listed(t), d.callTool)
		}
	}
	for group, tools := range g.tools {
		for _, name := range tools {
			if _, ok := g.offered[name]; !ok {
				panic(fmt.Sprintf("mcpserver: group %s has a tool %s, and the device has not", group, name))
			}
		}
	}
}
