// Package condition decides whether signals, states and events of devices meet a condition,
// sample by sample.
//
//	wait_for ─▶ Index ──▶ Tracker, one for each condition and device ─▶ Hit
//	              ▲           ▲
//	readings, events of     readings of the devices of this node
//	all nodes               │
//	watches ────────────────┘
//
// A sample is evidence for its own time only. A state is stored when it changes, and holds
// until the next change or gap. What happens in a gap is unknown: a hold of Condition.For
// begins again after it, and the gap is part of the Hit.
//
// Samples count in the order in which they arrive. A sample that is older than the one before
// it still counts by its value, but a hold begins again: the order is not known.
package condition

import (
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Condition is what to wait for.
type Condition struct {
	// Device is the ID of a device, or a pattern or a label selector of many. See Selector.
	Device string `json:"device" jsonschema:"ID, pattern such as kitchen-*, or label such as room=kitchen"`
	// Signal is the name of a signal, or empty if Event is set.
	Signal string `json:"signal,omitempty"`
	// Event is the type of an event or the method of a notification.
	Event string `json:"event,omitempty" jsonschema:"instead of signal: appeared, gone, or the method of a notification"`
	// Params are members that the params of a notification must have, with these values.
	Params map[string]any `json:"params,omitempty" jsonschema:"values in the notification"`
	// One of these is set for a signal.
	Above   *float64 `json:"above,omitempty"`
	Below   *float64 `json:"below,omitempty"`
	Outside *Band    `json:"outside,omitempty"`
	Inside  *Band    `json:"inside,omitempty"`
	Equals  *float64 `json:"equals,omitempty"`
	Changes bool     `json:"changes,omitempty"`
	// For is how long it must hold without a gap.
	For ferrule.Duration `json:"for,omitempty" jsonschema:"how long it must hold, such as 30s"`
	// Hysteresis is how far a value must go back before the condition can be met again. For
	// Changes it is the change that does not count yet.
	Hysteresis float64 `json:"hysteresis,omitempty"`
}

// String describes the condition in a few words, such as "tank level above 90 for 30s".
func (c *Condition) String() string {
	return strings.TrimSpace(c.Device+" "+c.Signal) + " " + c.Test()
}

// Test describes what the signal or event of the condition must be, such as "above 90 for 30s".
func (c *Condition) Test() string {
	var test string
	switch {
	case c.Event != "":
		test = "event " + c.Event
	case c.Above != nil:
		test = "above " + number(*c.Above)
	case c.Below != nil:
		test = "below " + number(*c.Below)
	case c.Equals != nil:
		test = "equals " + number(*c.Equals)
	case c.Inside != nil:
		test = "inside " + number(c.Inside.From) + " to " + number(c.Inside.To)
	case c.Outside != nil:
		test = "outside " + number(c.Outside.From) + " to " + number(c.Outside.To)
	case c.Changes:
		test = "changes"
	}
	if c.For > 0 {
		test += " for " + c.For.String()
	}
	return test
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// Band is a range of values. Both ends belong to it.
type Band struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// Hit is a moment at which a condition was met.
type Hit struct {
	Device string `json:"device"`
	Signal string `json:"signal,omitempty"`
	// Time is that of the sample or event that met it. For a state that had to hold for a
	// time it is the end of that time.
	Time  time.Time `json:"time"`
	Value float64   `json:"value"`
	// Within is the uncertainty of Time.
	Within ferrule.Duration `json:"within,omitempty"`
	// Event is set if the condition is about an event.
	Event *ferrule.Event `json:"event,omitempty"`
	// Gaps are ranges since the condition was set or last met in which it may have been met
	// unseen. MoreGaps is how many earlier ones were left out.
	Gaps     []ferrule.Gap `json:"gaps,omitempty"`
	MoreGaps int           `json:"more_gaps,omitempty"`
}

// predicate returns whether a value meets the condition now, and whether it is far enough
// back for the condition to be met again. It is not called for Changes.
func (c *Condition) predicate(v float64) (met, back bool) {
	h := c.Hysteresis
	switch {
	case c.Above != nil:
		return v > *c.Above, v <= *c.Above-h
	case c.Below != nil:
		return v < *c.Below, v >= *c.Below+h
	case c.Equals != nil:
		return v == *c.Equals, v != *c.Equals && (v < *c.Equals-h || v > *c.Equals+h)
	case c.Inside != nil:
		met = v >= c.Inside.From && v <= c.Inside.To
		return met, !met && (v < c.Inside.From-h || v > c.Inside.To+h)
	default:
		met = v < c.Outside.From || v > c.Outside.To
		return met, v >= c.Outside.From+h && v <= c.Outside.To-h
	}
}

// Meets reports whether a value of the signal meets the condition, apart from For. It is false
// for Changes, which no single value meets.
func (c *Condition) Meets(v float64) bool {
	if c.Event != "" || c.Changes || !finite(v) {
		return false
	}
	met, _ := c.predicate(v)
	return met
}

// clears reports whether a value is far enough back for the condition to be met again. A sample
// without a number ends nothing.
func (c *Condition) clears(v float64) bool {
	if c.Changes || !finite(v) {
		return false
	}
	_, back := c.predicate(v)
	return back
}
