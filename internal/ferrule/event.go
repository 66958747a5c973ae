package ferrule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Event is something that happened to a device, or that it said by itself.
type Event struct {
	// Seq counts from 1 on each node, as far as its events are kept. Who hears of an
	// event as it happens is told none.
	Seq    uint64    `json:"seq,omitempty"`
	Time   time.Time `json:"time"`
	Type   EventType `json:"type"`
	Device string    `json:"device"`
	Node   string    `json:"node"`
	Kind   Kind      `json:"kind,omitempty"`
	// Previous is the Kind that the device was, of one that has changed.
	Previous Kind `json:"previous,omitempty"`
	// Reason says why, where there is something to say.
	Reason string `json:"reason,omitempty"`
	// Tools names those that it happened to, the first few of them.
	Tools []string `json:"tools,omitempty"`
	// Method and Params are what it said: a word of its own, and JSON.
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
}

// What tells what an Event is about.
type EventType string

// What happens to devices.
const (
	Appeared     EventType = "appeared"    // it can be reached
	Gone         EventType = "gone"        // it can no longer be reached
	ChangedKind  EventType = "changed"     // it says something else of itself than before
	PendingFound EventType = "pending"     // it was found, and waits to be adopted
	Quarantined  EventType = "quarantined" // it has tools that cannot be used
	Notified     EventType = "notified"    // it has told something, unasked
)

// The bounds of an Event.
const (
	MaxMethod     = 128
	MaxParams     = 8 << 10
	MaxReason     = 500
	MaxEventTools = 20 // how many tools it names
)

// Bound makes an event safe to keep and to show, whoever made it: texts are cleaned
// and cut. The error tells why it cannot be used at all.
func (e *Event) Bound() error {
	if err := CheckID(e.Device); err != nil {
		return err
	}
	if n := len(e.Params); n > MaxParams {
		return fmt.Errorf("params of %d bytes; at most %d are possible", n, MaxParams)
	}
	switch e.Type {
	case Appeared, Gone, ChangedKind, PendingFound, Quarantined:
		e.Method, e.Params = "", nil
	case Notified:
		if e.Method = Clean(e.Method, MaxMethod); e.Method == "" {
			return errors.New("it has no method")
		}
		if err := e.compact(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("nothing is known that is called %q", Clean(string(e.Type), MaxWord))
	}
	e.Kind, e.Previous = Kind(Clean(string(e.Kind), MaxWord)), Kind(Clean(string(e.Previous), MaxWord))
	e.Reason = Clean(e.Reason, MaxReason)
	e.Tools = e.Tools[:min(len(e.Tools), MaxEventTools)]
	for i, name := range e.Tools {
		e.Tools[i] = Clean(name, MaxToolName)
	}
	return nil
}

// compact puts params into one line of text that can be shown.
func (e *Event) compact() error {
	if len(e.Params) == 0 {
		e.Params = nil
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(Clean(string(e.Params), 3*MaxParams))); err != nil {
		return fmt.Errorf("its params are no JSON: %w", err)
	}
	if n := b.Len(); n > MaxParams {
		return fmt.Errorf("params of %d bytes; at most %d are possible", n, MaxParams)
	}
	e.Params = b.Bytes()
	return nil
}
