package watch

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// mark is how far a watch has got with one device. It is stored, and shared with other
// nodes if the watch makes calls.
type mark struct {
	Watch  string `json:"watch"`
	Device string `json:"device"`
	// Node evaluates the watch for the device. Released is set if it has stopped in order:
	// then the mark is complete.
	Node     string `json:"node"`
	Released bool   `json:"released,omitempty"`
	Version  uint64 `json:"version"`
	// Active is set while the condition holds after a hit.
	Active bool `json:"active,omitempty"`
	// Open is set until the notice and the call of the last hit are begun. If evaluation is
	// interrupted before, the hit counts again.
	Open bool `json:"open,omitempty"`
	// Unsure is set if another node may have called for what holds now: the watch notifies,
	// and does not call.
	Unsure bool `json:"unsure,omitempty"`
	// Hits counts edges, Held those that the limits held back. Fired is the time of the
	// sample that fired last, with its Value, and At is when that was.
	Hits  uint64    `json:"hits"`
	Held  uint64    `json:"held,omitempty"`
	Fired time.Time `json:"fired,omitzero"`
	Value float64   `json:"value,omitempty"`
	At    time.Time `json:"at,omitzero"`
	// Calls are the times of calls in the last hour, in Unix seconds.
	Calls []int64 `json:"calls,omitempty"`
	// Intent is the ID of a call that has no outcome yet: it may have run. Changes is set if
	// the journal has an intent, too, before the call is sent.
	Intent  string   `json:"intent,omitempty"`
	Changes bool     `json:"changes,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	// NotCalled is why there was no call for the hit that fired last, if Outcome is about the
	// call of an earlier one.
	NotCalled string `json:"not_called,omitempty"`
}

// Outcome is what became of a hit of a watch, or how far its call is.
type Outcome struct {
	Time time.Time `json:"time"`
	// Hit is the hit, without its event.
	Hit *condition.Hit `json:"hit,omitempty"`
	// Call is the ID of the call in the journal; empty if there was none.
	Call string `json:"call,omitempty"`
	// Code is empty if the call succeeded, or if the watch only notifies.
	Code    ferrule.Code `json:"code,omitempty"`
	Message string       `json:"message,omitempty"`
	// MayHaveRun is set if the call failed and may have run, or if it is under way.
	MayHaveRun bool `json:"may_have_run,omitempty"`
	// Waiting is set while a person is asked.
	Waiting bool `json:"waiting,omitempty"`
}

// The keys of the file and of shared records begin with these.
const (
	watchKey = "watch."
	markKey  = "watchmark."
	seenKey  = "seen" // in the file: when watches were evaluated last
)

func keyOf(watch, device string) string { return watch + "." + device }

func (m *mark) key() string { return keyOf(m.Watch, m.Device) }

// parseMark reads a mark of a file or of another node.
func parseMark(key string, data []byte) (m mark, err error) {
	if err := json.Unmarshal(data, &m); err != nil {
		return m, err
	}
	if m.key() != key || !validID(m.Watch) || ferrule.CheckID(m.Device) != nil || len(m.Calls) > MaxPerHour {
		return m, errors.New("it belongs to another key, or is too long")
	}
	if o := m.Outcome; o != nil {
		if o.Hit != nil {
			o.Hit = &condition.Hit{Device: m.Device, Signal: ferrule.Clean(o.Hit.Signal, ferrule.MaxWord), Time: o.Hit.Time, Value: o.Hit.Value}
		}
		o.Message, o.Call, o.Code = ferrule.Clean(o.Message, ferrule.MaxText), ferrule.Clean(o.Call, ferrule.MaxWord), ferrule.Code(ferrule.Clean(string(o.Code), ferrule.MaxWord))
	}
	m.NotCalled = ferrule.Clean(m.NotCalled, ferrule.MaxText)
	m.Intent, m.Node = ferrule.Clean(m.Intent, ferrule.MaxWord), ferrule.Clean(m.Node, ferrule.MaxWord)
	return m, nil
}

// underWay reports whether the outcome is that of a call which has not ended.
func (o *Outcome) underWay() bool { return o.Waiting || o.Code == "" && o.MayHaveRun }

// replaces reports whether an outcome is shown instead of another one of the same watch: a
// call under way first, else the newest.
func (o *Outcome) replaces(other *Outcome) bool {
	switch {
	case o == nil || other == nil:
		return o != nil
	case (o.Call == "" || o.Call != other.Call) && o.underWay() != other.underWay():
		return o.underWay()
	}
	return o.Time.After(other.Time)
}

// about reports whether the outcome is about a hit.
func (o *Outcome) about(h *condition.Hit) bool {
	return o.Hit == nil || o.Hit.Device == h.Device && o.Hit.Time.Equal(h.Time)
}

// Certainty returns one sentence on what an outcome with a code means for the hardware.
func (o *Outcome) Certainty() string {
	return (&ferrule.Error{Code: o.Code, Sent: o.MayHaveRun}).Certainty()
}

// maxMessage limits the message of an outcome: the mark is a shared record.
const maxMessage = 500

// outcome returns what became of an edge, with the words of the device that was called marked.
func outcome(now time.Time, e *edge, call *Action, err error) *Outcome {
	o := &Outcome{Time: now, Hit: e.stored(), Call: e.id, Message: "called"}
	if err != nil {
		failed, device := ferrule.AsError(err), ""
		if call != nil {
			device = call.Device
		}
		o.Code, o.MayHaveRun = failed.Code, failed.MayHaveRun()
		o.Message = ferrule.OneLine(ferrule.Clean(failed.Attributed(device), ferrule.MaxText), maxMessage)
	}
	return o
}

// level reports whether a condition holds for a time, rather than for a moment.
func level(c *condition.Condition) bool { return c.Signal != "" && !c.Changes }

// seconds returns a time in Unix seconds, rounded up: limits are minimums.
func seconds(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// recent drops the times that are more than an hour ago.
func recent(times []int64, now time.Time) []int64 {
	past := now.Add(-time.Hour).Unix()
	return slices.DeleteFunc(slices.Clone(times), func(t int64) bool { return t <= past || t > now.Unix()+1 })
}

// next returns when one more is within the limits, given the times of those before.
func (w *Watch) next(times []int64, now time.Time) time.Time {
	times = recent(times, now)
	if len(times) == 0 {
		return now
	}
	slices.Sort(times)
	at := time.Unix(times[len(times)-1], 0).Add(time.Duration(w.Every))
	if n := len(times); n >= w.PerHour {
		if free := time.Unix(times[n-w.PerHour], 0).Add(time.Hour + time.Second); free.After(at) {
			at = free
		}
	}
	return at
}

// splitMark returns the watch and the device of the key of a mark.
func splitMark(key string) (watch, device string) {
	watch, device, _ = strings.Cut(key, ".")
	return watch, device
}
