// Package confirm decides which state of an entity shows that a service was carried out.
//
//	For(domain, service, arguments, state before) ──▶ Expectation
//	Expectation.Missing(state now)                ──▶ what is not as asked for
//
// The tables of services are in one file for each sort of entity: light.go, cover.go,
// lock.go, climate.go, media.go, robot.go and value.go. A service that is in no table is
// never confirmed.
package confirm

import (
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
)

// How long to wait for a state.
const (
	// Window is how long an entity may take to begin.
	Window = 5 * time.Second
	// Longest is how long it may take to finish, while it reports that it is on its way.
	Longest = 60 * time.Second
)

// Expectation is what the state of an entity shows when a service was carried out.
type Expectation struct {
	// Window is how long to wait for a state of an entity that is not on its way.
	Window time.Duration
	// Unseen are arguments that no state shows, sorted.
	Unseen []string
	wants  []want
	domain string
	stops  bool // to be on the way is not progress
}

// want is one thing that must hold.
type want struct {
	text  string // for people, such as "brightness 128"
	holds func(now home.State) bool
}

// For returns what a service of a domain with these arguments must bring about. Before is
// the state of the entity when the service is called.
func For(domain, service string, args map[string]any, before home.State) *Expectation {
	e := &Expectation{Window: Window, domain: domain}
	s := &subject{args: args, before: before, expect: e, seen: make(map[string]bool)}
	for _, c := range clauses(domain, service) {
		c(s)
	}
	for name := range args {
		if !s.seen[name] {
			e.Unseen = append(e.Unseen, name)
		}
	}
	slices.Sort(e.Unseen)
	return e
}

// tables has all services that are known.
var tables = []table{lights, covers, locks, climates, media, robots, values}

func clauses(domain, service string) []clause {
	for _, t := range tables {
		if c, ok := t[domain+"."+service]; ok {
			return c
		}
	}
	return everywhere[service]
}

// everywhere has services that mean the same for each other domain.
var everywhere = table{
	"turn_on":  {becomes("on")},
	"turn_off": {becomes("off")},
	"toggle":   {flips("on", "off")},
}

// Shown reports whether any state can show that the service was carried out.
func (e *Expectation) Shown() bool { return len(e.wants) > 0 }

// Missing returns what is not as asked for in a state; nothing if all of it is.
func (e *Expectation) Missing(now home.State) (missing []string) {
	for _, w := range e.wants {
		if now.Unavailable() || !w.holds(now) {
			missing = append(missing, w.text)
		}
	}
	return missing
}

// Met reports whether a state shows that the service was carried out.
func (e *Expectation) Met(now home.State) bool { return e.Shown() && len(e.Missing(now)) == 0 }

// Moving reports whether the entity is on its way to what was asked for.
func (e *Expectation) Moving(now home.State) bool { return !e.stops && moving(e.domain, now) }

// Fault returns the state of an entity that has given up, such as jammed; else nothing.
func (e *Expectation) Fault(now home.State) string {
	if slices.Contains(transits[e.domain].faults, now.Value) {
		return now.Value
	}
	return ""
}

// transit is the states of a domain that are not final.
type transit struct {
	moving, faults []string
}

var transits = map[string]transit{
	"lock":                {moving: []string{"locking", "unlocking", "opening"}, faults: []string{"jammed"}},
	"cover":               {moving: []string{"opening", "closing"}},
	"valve":               {moving: []string{"opening", "closing"}},
	"alarm_control_panel": {moving: []string{"arming", "pending", "disarming"}},
	"vacuum":              {faults: []string{"error"}},
	"lawn_mower":          {faults: []string{"error"}},
	"media_player":        {moving: []string{"buffering"}},
}

func moving(domain string, now home.State) bool {
	return slices.Contains(transits[domain].moving, now.Value) || domain == "update" && string(now.Attributes["in_progress"]) == "true"
}

// Travels reports whether entities of this sort take time, and change on their way.
func (e *Expectation) Travels() bool { return len(transits[e.domain].moving) > 0 }
