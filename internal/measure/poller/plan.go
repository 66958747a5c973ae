package poller

import (
	"fmt"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of what one device is asked for.
const (
	maxProbes  = 256
	maxSignals = 256
)

// What is asked how often where nobody says.
const (
	usually = 10 * time.Second
	soonest = time.Second
	seldom  = time.Minute
)

// plan is what devices of one Kind are asked for. They share it, and it never changes.
type plan struct {
	probes  []ferrule.Poll
	notes   []string // what is wrong with it, the first of it
	devices int      // how many have it
}

// newPlan joins what a grammar asks for, which tools want to be polled, and what overlays
// say about both.
func newPlan(laid *ferrule.Manifest, grammar func(*ferrule.Manifest) []ferrule.Poll) *plan {
	p := &plan{}
	if grammar != nil {
		p.probes = grammar(laid)
	}
	taken := make(map[string]int)
	for _, probe := range p.probes {
		taken[probe.Name]++
	}
	for i := range laid.Tools {
		if t := &laid.Tools[i]; t.Poll > 0 {
			p.probes = append(p.probes, ferrule.Poll{Name: unused(t.Name, taken), Tool: t.Name, Every: &t.Poll})
		}
	}
	for _, said := range laid.Polls {
		p.lay(said)
	}
	p.probes = slices.DeleteFunc(p.probes, func(probe ferrule.Poll) bool { return !p.wanted(laid, &probe) })
	if n := len(p.probes); n > maxProbes {
		p.note("it would be asked for %d things; the first %d are asked for", n, maxProbes)
		p.probes = p.probes[:maxProbes]
	}
	return p
}

// note tells what is wrong. There is a bound to it, as a device may do everything wrong.
func (p *plan) note(format string, args ...any) {
	if len(p.notes) < ferrule.MaxNotes {
		p.notes = append(p.notes, fmt.Sprintf(format, args...))
	}
}

// unused is a name for the probe of a tool that no other has. Taken counts how often each
// was wanted.
func unused(tool string, taken map[string]int) string {
	base := ferrule.SignalName(tool)
	if base == "" {
		base = "tool"
	}
	name := base
	for taken[name] > 0 {
		taken[base]++
		suffix := fmt.Sprintf("_%d", taken[base])
		name = base[:min(len(base), ferrule.MaxSignal-len(suffix))] + suffix
	}
	taken[name]++
	return name
}

// lay changes a probe as an overlay says, or makes one.
func (p *plan) lay(said ferrule.Poll) {
	at := slices.IndexFunc(p.probes, func(probe ferrule.Poll) bool { return probe.Name == said.Name })
	if at < 0 {
		if said.Tool == "" {
			p.note("an overlay speaks of a probe %s, which it does not have, and names no tool for it", said.Name)
			return
		}
		p.probes = append(p.probes, said)
		return
	}
	probe := &p.probes[at]
	if said.Tool != "" || said.Args != nil || said.Ring != nil { // what was known of its answer may not be so
		probe.Fallback = nil
	}
	if said.Ring != nil && probe.Parse != nil {
		probe.Every = nil // it was for the ring that the device speaks of
	}
	if said.Tool != "" && said.Tool != probe.Tool || said.Ring != nil {
		probe.Parse = nil
	}
	probe.Merge(said)
	if probe.Fallback != nil {
		instead := *probe.Fallback
		instead.Merge(said)
		probe.Fallback = &instead
	}
}

// wanted tells whether something is to be asked for, and can be.
func (p *plan) wanted(laid *ferrule.Manifest, probe *ferrule.Poll) bool {
	if probe.Every != nil && *probe.Every <= 0 {
		return false // its owner does not want it
	}
	if why := unfit(laid, probe.Tool); why != "" {
		p.note("its probe %s asks the tool %q, %s", probe.Name, probe.Tool, why)
		return false
	}
	return true
}

// unfit is why a tool is not called by the gateway itself.
func unfit(laid *ferrule.Manifest, name string) string {
	switch tool := laid.Tool(name); {
	case tool == nil:
		return "which it does not have"
	case tool.Quarantine != "":
		return "which cannot be used: " + tool.Quarantine
	case tool.UserOnly:
		return "which is for people only"
	case tool.Effect == ferrule.Endangers:
		return "which endangers, and is never called by itself"
	}
	return ""
}

// everyOf is how often a probe is asked: so that each sample of a ring is seen twice, if
// nobody says more.
func everyOf(probe *ferrule.Poll, fastest time.Duration) time.Duration {
	every := usually
	switch {
	case probe.Every != nil:
		every = time.Duration(*probe.Every)
	case probe.Ring != nil:
		whole := time.Duration(probe.Ring.Size) * min(time.Duration(probe.Ring.Interval), seldom)
		every = min(max(whole*2/5, soonest), seldom)
	}
	return max(every, fastest)
}
