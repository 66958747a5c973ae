package catalog

import (
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Built-in tools for measured values. They are listed while a device has any, online or
// not. The folded list leaves out history, because sql returns numbers as well, and wait_for,
// which is long; the instructions name it.
var (
	listedIfMeasuring       = []string{"latest", "history", "plot", "sql", "wait_for", "watch", "list_watches"}
	listedIfMeasuringFolded = []string{"latest", "plot", "sql"}
)

// measureToolsOf returns those tools as a group for searches, or nil.
func measureToolsOf(kind ferrule.Kind, m *ferrule.Manifest) *group {
	tools := &ferrule.Manifest{Model: m.Model}
	for _, t := range m.Tools {
		if slices.Contains(listedIfMeasuring, t.Name) {
			tools.Tools = append(tools.Tools, t)
		}
	}
	if tools.Tools == nil {
		return nil
	}
	return newGroup(kind, tools)
}

// measures returns 1 for a device that agents may see and that is polled, else 0.
func measures(dev *ferrule.Device, m *ferrule.Manifest) int {
	if m == nil || !anyAgent.CanSee(dev) {
		return 0
	}
	polled := func(t ferrule.Tool) bool { return t.Poll > 0 && t.Quarantine == "" }
	sampled := func(p ferrule.Pin) bool { return p.Sampling != nil || len(p.Abilities) > 0 }
	if len(m.Polls) > 0 || slices.ContainsFunc(m.Tools, polled) || slices.ContainsFunc(m.Pins, sampled) {
		return 1
	}
	return 0
}
