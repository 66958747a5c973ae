package catalog

import (
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The gateway's tools that tell what was measured. They stand in the list while there is
// a device that measures something, online or not, as long as that is short: numbers can
// be asked for in SQL as well.
var (
	whenMeasures    = []string{"latest", "history", "plot", "sql"}
	whenManyMeasure = []string{"latest", "plot", "sql"}
)

// pastOf is those tools of the gateway, as a search sees them; nil if it has none.
func pastOf(kind ferrule.Kind, m *ferrule.Manifest) *group {
	past := &ferrule.Manifest{Model: m.Model}
	for _, t := range m.Tools {
		if slices.Contains(whenMeasures, t.Name) {
			past.Tools = append(past.Tools, t)
		}
	}
	if past.Tools == nil {
		return nil
	}
	return newGroup(kind, past)
}

// measures is 1 for a device that agents may know of, and of which something is measured:
// because it says so, or its owner does.
func measures(dev *ferrule.Device, m *ferrule.Manifest) int {
	if m == nil || !anAgent.CanSee(dev) {
		return 0
	}
	polled := func(t ferrule.Tool) bool { return t.Poll > 0 && t.Quarantine == "" }
	sampled := func(p ferrule.Pin) bool { return p.Sampling != nil || len(p.Abilities) > 0 }
	if len(m.Polls) > 0 || slices.ContainsFunc(m.Tools, polled) || slices.ContainsFunc(m.Pins, sampled) {
		return 1
	}
	return 0
}
