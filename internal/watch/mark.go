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
	// Intent is the ID of a call that has no outcome yet: it may have run.
	Intent  string   `json:"intent,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
}

// Outcome is what became of the last hit of a watch.
type Outcome struct {
	Time time.Time `json:"time"`
	// Call is the ID of the call in the journal; empty if there was none.
	Call string `json:"call,omitempty"`
	// Code is empty if the call succeeded, or if the watch only notifies.
	Code    ferrule.Code `json:"code,omitempty"`
	Message string       `json:"message"`
	// MayHaveRun is set if the call failed and may have run, or if it is not known.
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
		o.Message, o.Call, o.Code = ferrule.Clean(o.Message, ferrule.MaxText), ferrule.Clean(o.Call, ferrule.MaxWord), ferrule.Code(ferrule.Clean(string(o.Code), ferrule.MaxWord))
	}
	m.Intent, m.Node = ferrule.Clean(m.Intent, ferrule.MaxWord), ferrule.Clean(m.Node, ferrule.MaxWord)
	return m, nil
}

// interrupted turns an intent without an outcome into an outcome: the node that made the
// call has ended, so nobody knows.
func (m *mark) interrupted(why string) {
	if m.Intent == "" {
		return
	}
	m.Outcome = &Outcome{Time: m.At, Call: m.Intent, Code: ferrule.Unanswered, MayHaveRun: true, Message: "the call may have run: " + why + ". Check the device. The watch does not call again for the same edge."}
	m.Intent = ""
}

// maxMessage limits the message of an outcome: the mark is a shared record.
const maxMessage = 500

func outcome(now time.Time, call string, err error) *Outcome {
	if err == nil {
		return &Outcome{Time: now, Call: call, Message: "called"}
	}
	e := ferrule.AsError(err)
	return &Outcome{Time: now, Call: call, Code: e.Code, Message: ferrule.OneLine(ferrule.Clean(e.Message, ferrule.MaxText), maxMessage), MayHaveRun: e.MayHaveRun()}
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
