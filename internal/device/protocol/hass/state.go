package hass

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of what is heard.
const (
	maxPayload = 64 << 10 // bytes of a message with states
	maxPlain   = 4 << 10  // bytes of a message that is itself a value
	maxValue   = 2 << 10  // bytes of one value as JSON
)

// state is one state of a device: how to read it, and what was heard last. There are many,
// so times are durations since the session began.
type state struct {
	entity.State
	local  string // its name within its entity
	entity int

	// The following fields are guarded by the mutex of the session.

	value    entity.Value
	at       time.Duration // when it was heard
	heard    bool
	retained bool
}

// current returns the value at a time: it expires, or falls back to off. Reason is why it is
// unknown. It is called with mu held.
func (s *state) current(now time.Duration) (v entity.Value, since time.Duration, reason string) {
	switch {
	case !s.heard:
		return unknown, 0, "not heard"
	case s.ExpireAfter > 0 && now-s.at > s.ExpireAfter:
		return unknown, s.at, fmt.Sprintf("nothing heard for more than %v", s.ExpireAfter)
	case s.fallen(now):
		return off, s.at + s.OffDelay, ""
	case bytes.Equal(s.value.JSON, unknown.JSON):
		return unknown, s.at, "the device reports that it is unknown"
	}
	return s.value, s.at, ""
}

// fallen reports whether a state that was on has fallen back to off.
func (s *state) fallen(now time.Duration) bool {
	return s.OffDelay > 0 && s.heard && s.value.Number == on && now-s.at >= s.OffDelay
}

const on = 1

var (
	off     = entity.Value{JSON: json.RawMessage("false")}
	unknown = entity.Value{JSON: json.RawMessage("null"), Number: math.NaN()}
)

// extract returns the value of a state in a message, and false if there is none. Vars is set
// at the first use, because decoding is expensive.
func (s *state) extract(data []byte, vars *template.Vars) (entity.Value, bool) {
	text := ""
	if s.Template == nil {
		if len(data) > maxPlain || !utf8.Valid(data) {
			return entity.Value{}, false
		}
		text = string(data)
	} else {
		if *vars == nil {
			*vars = template.Payload(data)
		}
		var err error
		if text, err = s.Template.Render(*vars); err != nil {
			return entity.Value{}, false
		}
	}
	v, ok := s.Convert(text)
	if !ok || len(v.JSON) > maxValue || !json.Valid(v.JSON) {
		return entity.Value{}, false
	}
	return v, true
}

// statesOf returns the states that a topic speaks of, as indexes from and to.
func (s *Session) statesOf(topic string) (from, to int) {
	from, _ = slices.BinarySearchFunc(s.states, topic, func(st state, topic string) int { return cmp.Compare(st.Topic, topic) })
	for to = from; to < len(s.states) && s.states[to].Topic == topic; to++ {
	}
	return from, to
}

// hear reads a message with states.
func (s *Session) hear(m transport.Message, at time.Time) {
	from, to := s.statesOf(m.Channel)
	if from == to {
		return
	}
	if len(m.Data) > maxPayload {
		transport.Note(s.link, "dropped: message of %d bytes, limit is %d", len(m.Data), maxPayload)
		return
	}
	var vars template.Vars
	var measured []ferrule.Measurement
	for i := from; i < to; i++ {
		st := &s.states[i]
		if st.Event && m.Retained {
			continue
		}
		v, ok := st.extract(m.Data, &vars)
		switch {
		case !ok:
		case st.Event:
			s.event(st, v)
		default:
			s.store(i, v, at, m.Retained)
			if x, ok := st.measurement(v); ok && !m.Retained {
				measured = append(measured, x)
			}
		}
	}
	s.measured(at, measured)
}

// store keeps a value, and passes it to the call that waits for it.
func (s *Session) store(i int, v entity.Value, at time.Time, retained bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.states[i]
	if retained && st.heard && !st.retained {
		return // what was heard live is newer
	}
	if s.waiting != nil && !retained {
		s.waiting.hear(i, v, at.Sub(s.began))
	}
	if st.Secret { // only whether and when it was heard
		v = unknown
	}
	st.value, st.at, st.heard, st.retained = v, at.Sub(s.began), true, retained
}

// measurement returns what is recorded of a value.
func (s *state) measurement(v entity.Value) (ferrule.Measurement, bool) {
	if !s.Signal || s.Secret || math.IsNaN(v.Number) || math.IsInf(v.Number, 0) {
		return ferrule.Measurement{}, false
	}
	return ferrule.Measurement{Signal: s.Name, Unit: s.Unit, Values: []float64{v.Number}, State: s.Discrete}, true
}

// measured reports measurements.
func (s *Session) measured(at time.Time, all []ferrule.Measurement) {
	if s.report == nil {
		return
	}
	for some := range slices.Chunk(all, ferrule.MaxBatches) {
		s.report(at, some)
	}
}

// fall reports the states that fell back to off by now, and returns when the next one does;
// zero for never. Only Run calls it.
func (s *Session) fall(now time.Time) (next time.Time) {
	if !s.falls {
		return time.Time{}
	}
	var fallen []int
	s.mu.Lock()
	for i := range s.states {
		st := &s.states[i]
		if st.OffDelay <= 0 || !st.heard || st.value.Number != on {
			continue
		}
		if st.fallen(now.Sub(s.began)) {
			st.value, st.at = off, st.at+st.OffDelay
			fallen = append(fallen, i)
		} else if due := s.began.Add(st.at + st.OffDelay); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	s.mu.Unlock()
	for _, i := range fallen {
		st := &s.states[i]
		if x, ok := st.measurement(off); ok && !st.retained {
			s.measured(s.began.Add(st.at), []ferrule.Measurement{x})
		}
	}
	return next
}

// toolState is the name of the tool that reads what was heard.
const toolState = "state"

// stateInput is its schema.
var stateInput = json.RawMessage(`{"type":"object","properties":{"names":{"type":"array","items":{"type":"string"},"maxItems":64,"description":"Which values to return; all if it is left out."}},"additionalProperties":false}`)

// stateTool returns the tool that reads what was heard.
func (d *description) stateTool() ferrule.Tool {
	const text = "Returns what the device last reported, with the age of each value. Nothing is sent to the device."
	var names []string
	for _, s := range d.states {
		switch {
		case s.Event || s.Secret:
		case s.Unit != "":
			names = append(names, fmt.Sprintf("%s (%s)", s.Name, s.Unit))
		default:
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	t := ferrule.Tool{Name: toolState, Text: text, Input: stateInput, Effect: ferrule.Reads, Idempotent: true}
	if len(names) > 0 {
		t.Text += " Values: " + strings.Join(names, ", ") + "."
	}
	return t
}

// reading is one value of the state tool.
type reading struct {
	Value    json.RawMessage `json:"value"`
	Unit     string          `json:"unit,omitempty"`
	Age      string          `json:"age,omitempty"`
	Retained bool            `json:"retained,omitempty"`
	Reason   string          `json:"reason,omitempty"`
}

// readings returns the values of all states with these names; of all if there are none.
func (s *Session) readings(names []string) map[string]reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.began)
	all := make(map[string]reading)
	for i := range s.states {
		st := &s.states[i]
		if st.Event || st.Secret || names != nil && !slices.Contains(names, st.Name) {
			continue
		}
		v, since, reason := st.current(now)
		r := reading{Value: v.JSON, Unit: st.Unit, Reason: reason}
		if st.heard {
			r.Age, r.Retained = (now - since).Round(time.Second).String(), st.retained
		} else {
			r.Reason = "not heard since " + s.began.UTC().Format(time.RFC3339)
		}
		all[st.Name] = r
	}
	return all
}

// readState performs a call of the state tool.
func (s *Session) readState(args map[string]any) (*ferrule.Result, error) {
	var names []string
	if list, ok := args["names"].([]any); ok {
		names = make([]string, 0, len(list))
		for _, item := range list {
			name, _ := item.(string)
			names = append(names, name)
		}
	}
	values := s.readings(names)
	for _, name := range names {
		if _, ok := values[name]; !ok {
			return nil, ferrule.Errorf(ferrule.Invalid, "unknown value %q", ferrule.Clean(name, ferrule.MaxSignal)).
				WithHint("call %s without arguments to see all values", toolState)
		}
	}
	data, err := json.Marshal(map[string]any{"values": values})
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "encoding the state: %w", err)
	}
	return &ferrule.Result{Value: data}, nil
}
