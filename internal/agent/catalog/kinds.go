package catalog

import (
	"cmp"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// KindTools is what a caller is shown of the devices that share an effective manifest.
type KindTools struct {
	Kind     ferrule.Kind
	Manifest *ferrule.Manifest
	// Tools are sorted by name. There is at least one.
	Tools []*ferrule.Tool
}

// Kinds returns up to limit Kinds of listed devices, in an order that does not depend on the
// devices. A Kind with overlays for some of its devices can occur more than once. A tool is
// shown if it is for at least one device.
func (v View) Kinds(limit int) (all []KindTools) {
	type candidate struct {
		*group
		members snapshot
	}
	v.c.mu.Lock()
	groups := make([]candidate, 0, len(v.c.groups))
	for _, g := range v.c.groups {
		c := candidate{group: g}
		if v.Restricted() {
			c.members = g.members.take()
		}
		groups = append(groups, c)
	}
	v.c.mu.Unlock()
	slices.SortFunc(groups, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.manifest.Model, b.manifest.Model), cmp.Compare(a.kind, b.kind), cmp.Compare(a.fingerprint, b.fingerprint))
	})
	for _, g := range groups {
		if len(all) == limit {
			break
		}
		tools := g.tools
		if v.Restricted() {
			tools = slices.DeleteFunc(slices.Clone(tools), func(t *ferrule.Tool) bool { return !v.any(g.members, t) })
		}
		if len(tools) > 0 {
			all = append(all, KindTools{g.kind, g.manifest, tools})
		}
	}
	return all
}

// KindOf returns the same for one device, if it is listed.
func (v View) KindOf(id string) (KindTools, bool) {
	e := v.entry(id)
	if e == nil || e.group == nil {
		return KindTools{}, false
	}
	tools := slices.DeleteFunc(slices.Clone(e.group.tools), func(t *ferrule.Tool) bool { return !v.seen.Tool(e.device, t) })
	return KindTools{e.group.kind, e.manifest, tools}, len(tools) > 0
}
