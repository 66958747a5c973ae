package ferrule

import "time"

// Event is something that happened to a device.
type Event struct {
	// Seq counts from 1 on each node, as far as its events are kept.
	Seq    uint64    `json:"seq"`
	Time   time.Time `json:"time"`
	What   What      `json:"what"`
	Device string    `json:"device"`
	Node   string    `json:"node"`
	Kind   Kind      `json:"kind,omitempty"`
	// Previous is the Kind that the device was, of one that has changed.
	Previous Kind `json:"previous,omitempty"`
	// Reason says why, where there is something to say.
	Reason string `json:"reason,omitempty"`
	// Tools names those that it happened to, the first few of them.
	Tools []string `json:"tools,omitempty"`
}

// What tells what an Event is about.
type What string

// What happens to devices.
const (
	Appeared    What = "appeared"    // it can be reached
	Gone        What = "gone"        // it can no longer be reached
	ChangedKind What = "changed"     // it says something else of itself than before
	HeldBack    What = "held"        // it was found, and waits to be adopted
	Quarantined What = "quarantined" // it has tools that cannot be used
)
