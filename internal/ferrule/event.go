package ferrule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Event is something that happened to a device, or that it reported unasked.
type Event struct {
	// Seq counts the stored events of a node from 1. It is 0 in a live event.
	Seq    uint64    `json:"seq,omitempty"`
	Time   time.Time `json:"time"`
	Type   EventType `json:"type"`
	Device string    `json:"device"`
	Node   string    `json:"node"`
	Kind   Kind      `json:"kind,omitempty"`
	// Previous is the Kind before a ChangedKind.
	Previous Kind `json:"previous,omitempty"`
	// Reason says why; it may be empty.
	Reason string `json:"reason,omitempty"`
	// Tools lists the first few affected tools.
	Tools []string `json:"tools,omitempty"`
	// Method and Params are the content of a notification: the device's own name
	// for it, and JSON.
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
}

// EventType is the type of an Event.
type EventType string

// The types of events.
const (
	Appeared     EventType = "appeared"    // it came online
	Gone         EventType = "gone"        // it went offline
	ChangedKind  EventType = "changed"     // its manifest changed
	PendingFound EventType = "pending"     // it was found and is not adopted
	Quarantined  EventType = "quarantined" // it has unusable tools
	ChangesWait  EventType = "waiting"     // it offers what its owner has not accepted
	Notified     EventType = "notified"    // it sent a notification
	// ApprovalEvent means that a call of it waits for approval, or that a person or time
	// has decided; the Reason begins with the ID of the request.
	ApprovalEvent EventType = "approval"
	// WasStopped and WasResumed say that its changes are denied, or permitted again. The
	// device is GatewayID if that is so for everything.
	WasStopped EventType = "stopped"
	WasResumed EventType = "resumed"
	// Registered and Unregistered say that it has more or fewer tools, which Tools lists: a
	// plugin offered them, or a part of the program registered them.
	Registered   EventType = "registered"
	Unregistered EventType = "unregistered"
	// WatchFired means that a watch on it has fired, or what became of its call. Params has
	// the ID of the watch and the hit.
	WatchFired EventType = "watch"
)

var eventTypes = []EventType{Appeared, Gone, ChangedKind, PendingFound, Quarantined, ChangesWait, WasStopped, WasResumed, Registered, Unregistered, Notified, WatchFired, ApprovalEvent}

// EventTypes returns the types of events.
func EventTypes() []EventType { return slices.Clone(eventTypes) }

// Known reports whether t is one of the types of events.
func (t EventType) Known() bool { return slices.Contains(eventTypes, t) }

// The limits of an Event.
const (
	MaxMethod     = 128
	MaxParams     = 8 << 10
	MaxReason     = 500
	MaxEventTools = 20 // number of Tools
)

// Bound makes an untrusted event safe to store and to show: it cleans and cuts
// texts. It returns an error if the event is unusable.
func (e *Event) Bound() error {
	if err := CheckID(e.Device); err != nil {
		return err
	}
	if n := len(e.Params); n > MaxParams {
		return fmt.Errorf("params have %d bytes; limit is %d", n, MaxParams)
	}
	switch e.Type {
	case Appeared, Gone, ChangedKind, PendingFound, Quarantined, ChangesWait, ApprovalEvent, WasStopped, WasResumed, Registered, Unregistered:
		e.Method, e.Params = "", nil
	case WatchFired:
		e.Method = ""
		if err := e.compact(); err != nil {
			return err
		}
	case Notified:
		if e.Method = Clean(e.Method, MaxMethod); e.Method == "" {
			return errors.New("no method")
		}
		if err := e.compact(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown event type %q", Clean(string(e.Type), MaxWord))
	}
	e.Kind, e.Previous = Kind(Clean(string(e.Kind), MaxWord)), Kind(Clean(string(e.Previous), MaxWord))
	e.Reason = Clean(e.Reason, MaxReason)
	e.Tools = e.Tools[:min(len(e.Tools), MaxEventTools)]
	for i, name := range e.Tools {
		e.Tools[i] = Clean(name, MaxToolName)
	}
	return nil
}

// compact makes Params a single line of printable JSON.
func (e *Event) compact() error {
	if len(e.Params) == 0 {
		e.Params = nil
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, CleanJSON([]byte(Clean(string(e.Params), 3*MaxParams)))); err != nil {
		return fmt.Errorf("params are not JSON: %w", err)
	}
	if n := b.Len(); n > MaxParams {
		return fmt.Errorf("params have %d bytes; limit is %d", n, MaxParams)
	}
	e.Params = b.Bytes()
	return nil
}

// Trace is a frame seen on the link to a device, or a remark about it.
type Trace struct {
	Time time.Time `json:"time"`
	// Direction is in, out, or note for a remark of the gateway.
	Direction string `json:"direction"`
	// Channel is set if the transport has several.
	Channel string `json:"channel,omitempty"`
	// Data is the frame; bytes that are not text are escaped.
	Data string `json:"data,omitempty"`
	// Note is the remark, or a comment on the frame.
	Note string `json:"note,omitempty"`
}
