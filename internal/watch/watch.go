// Package watch keeps watches: durable conditions that an agent or a person sets. A watch
// notifies when its condition becomes true, and can make one call as its owner.
//
//	Set ─▶ record: file, and shared with other nodes
//	         │
//	sample, event ─▶ follower (one per watch and device of this node) ─▶ hit
//	                                                                      │ limits
//	      mark on disk ◀──────────────────────────────────────────────── fire
//	         │                                                            │
//	         └─▶ the call, through the pipeline ─▶ outcome in the mark    └─▶ notices
//
// A watch is evaluated on the node that holds the device. The mark says which sample fired
// last, and whether the condition still holds. It is on disk before the call is sent, so a
// call is never made twice for one edge: after a crash it may have run, and is not repeated.
// A notice may be repeated.
//
// A node that takes a device over from a node that crashed does not know whether that node
// has called. It notifies, and calls only after it has seen the condition false.
package watch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of watches.
const (
	// MaxWatches is the maximum number of watches, and MaxOwn of one agent.
	MaxWatches = 10_000
	MaxOwn     = 200
	// MaxPerHour is the maximum of Watch.PerHour: the times of the calls are in the mark.
	MaxPerHour = 60

	// maxFollowers is the maximum number of pairs of a watch and a device of this node, and
	// maxOwnFollowers of the watches of one agent: a watch can select all devices.
	maxFollowers    = 1 << 18
	maxOwnFollowers = 1 << 15

	maxName   = 64
	maxRecord = 3500 // bytes; shared records have 4 KiB
	minEvery  = time.Second
	maxEvery  = 24 * time.Hour
	maxExpiry = 10 * 365 * 24 * time.Hour
)

// The defaults of a watch.
const (
	DefaultEvery   = time.Minute
	DefaultPerHour = 12
)

// The ways in which a watch notifies, in addition to its resource and an event.
const (
	Webhook = "webhook"
	MQTT    = "mqtt"
)

// Watch is one watch.
type Watch struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Owner set the watch. Its calls are those of the owner.
	Owner ferrule.Principal `json:"owner"`
	// Node is where it was set.
	Node      string              `json:"node"`
	Condition condition.Condition `json:"condition"`
	// Notify lists Webhook and MQTT.
	Notify []string `json:"notify,omitempty"`
	Call   *Action  `json:"call,omitempty"` // nil if it only notifies
	// Every is the minimum time between two hits that notify or call, and PerHour is their
	// maximum number in an hour. Notices count for each device, calls for the watch.
	Every   ferrule.Duration `json:"every"`
	PerHour int              `json:"per_hour"`
	// Off is set if it is disabled, and OffBy says by whom.
	Off     bool      `json:"off,omitempty"`
	OffBy   string    `json:"off_by,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero for never
	// Version grows with every change. Removed watches are kept for a while, so that a node
	// that was away does not bring them back.
	Version uint64 `json:"version"`
	Removed bool   `json:"removed,omitempty"`
}

// Action is the call of a watch.
type Action struct {
	Device string          `json:"device"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args,omitempty"`
}

// String returns the call as it is shown.
func (a *Action) String() string {
	return strings.TrimSpace(a.Tool + " of " + a.Device + " " + string(a.Args))
}

// OwnedBy reports whether a caller set the watch.
func (w *Watch) OwnedBy(who ferrule.Principal) bool {
	return w.Owner.Role == who.Role && w.Owner.Name == who.Name && w.Owner.Auth == who.Auth
}

// expired reports whether the time of the watch is over.
func (w *Watch) expired(now time.Time) bool { return !w.Expires.IsZero() && !now.Before(w.Expires) }

// live reports whether the watch is evaluated.
func (w *Watch) live(now time.Time) bool { return !w.Removed && !w.Off && !w.expired(now) }

// parse reads a record of a file or of another node.
func parse(id string, data []byte) (w Watch, err error) {
	if len(data) > 2*maxRecord {
		return w, errors.New("it is too long")
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return w, err
	}
	if w.ID != id || !validID(id) {
		return w, fmt.Errorf("invalid ID %q", ferrule.Clean(w.ID, ferrule.MaxWord))
	}
	if w.Removed {
		return Watch{ID: w.ID, Removed: true, Version: w.Version, Created: w.Created, Expires: w.Expires}, nil
	}
	if w.Owner.Role != ferrule.Agent && w.Owner.Role != ferrule.Person || w.Created.IsZero() {
		return w, errors.New("it has no owner, or no time")
	}
	return w, w.check()
}

// validID reports whether an ID is one that newID returns.
func validID(id string) bool {
	return len(id) == idLen && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

const idLen = 10

// check returns what is wrong with what the owner chose.
func (w *Watch) check() error {
	switch {
	case w.Name == "" || ferrule.Clean(w.Name, maxName) != w.Name || strings.ContainsAny(w.Name, "\n\t"):
		return fmt.Errorf("name: must be one line of 1 to %d characters", maxName)
	case time.Duration(w.Every) < minEvery || time.Duration(w.Every) > maxEvery:
		return fmt.Errorf("every: must be from %v to %v, got %v", minEvery, maxEvery, time.Duration(w.Every))
	case w.PerHour < 1 || w.PerHour > MaxPerHour:
		return fmt.Errorf("per_hour: must be from 1 to %d, got %d", MaxPerHour, w.PerHour)
	}
	if err := w.Condition.CheckAt("when"); err != nil {
		return err
	}
	if w.Condition.Event == string(ferrule.WatchFired) { // it could fire itself
		return errors.New("when.event: a watch cannot wait for events of watches")
	}
	for i, channel := range w.Notify {
		if !slices.Contains([]string{Webhook, MQTT}, channel) || slices.Contains(w.Notify[:i], channel) {
			return errors.New("notify: must have webhook or mqtt, each at most once")
		}
	}
	if err := w.Call.Check(); err != nil {
		return err
	}
	if data, err := json.Marshal(w); err != nil || len(data) > maxRecord {
		return fmt.Errorf("the watch is too long: limit is %d bytes, mostly for the arguments of its call", maxRecord)
	}
	return nil
}

// Check returns what is wrong with a call, without knowing the device.
func (a *Action) Check() error {
	switch {
	case a == nil:
		return nil
	case a.Device == ferrule.GatewayID || strings.HasPrefix(a.Tool, ferrule.GatewayID+"__"):
		return errors.New("call: a watch cannot call the gateway's own tools, only a tool of a device; " +
			"leave call out, and let an agent that is notified call the gateway")
	case ferrule.CheckID(a.Device) != nil:
		return fmt.Errorf("call.device: %w", ferrule.CheckID(a.Device))
	case a.Tool == "" || ferrule.Clean(a.Tool, ferrule.MaxToolName) != a.Tool:
		return errors.New("call.tool: must be the name of a tool of the device")
	}
	if len(a.Args) == 0 {
		return nil
	}
	var args map[string]any
	d := json.NewDecoder(bytes.NewReader(a.Args))
	if d.Decode(&args) != nil || args == nil || d.More() {
		return errors.New("call.args: must be a JSON object")
	}
	return nil
}
