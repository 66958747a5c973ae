package homeassistant

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// hearStates reads the states of entities. Those that Home Assistant had before are neither
// measurements nor events.
func (s *Session) hearStates(m transport.Message, at time.Time) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(m.Data, &all); err != nil {
		return err
	}
	var measured []ferrule.Measurement
	for id, data := range all {
		var now *home.State
		if err := json.Unmarshal(data, &now); err != nil {
			return err
		}
		if now == nil {
			now = &home.State{Value: unavailable}
			data = nil
		}
		before := s.store(id, data, *now, at)
		if m.Retained {
			continue
		}
		measured = append(measured, s.measurements(id, *now)...)
		s.events(id, before, *now, at)
	}
	if s.report != nil {
		for some := range slices.Chunk(measured, ferrule.MaxBatches) {
			s.report(at, some)
		}
	}
	return nil
}

// unavailable is the state of an entity that Home Assistant cannot reach.
const unavailable = "unavailable"

// store keeps a state, and passes it to the call that waits for it. It returns the one
// before.
func (s *Session) store(id string, data json.RawMessage, now home.State, at time.Time) (before home.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, _ = s.state(id)
	if data == nil {
		delete(s.states, id)
	} else {
		s.states[id] = slices.Clone(data) // without the rest of the message
	}
	if w := s.waiting; w != nil && w.entity.id == id {
		w.hear(now, at)
	}
	return before
}

// state returns the state of an entity. It is called with mu held.
func (s *Session) state(id string) (now home.State, known bool) {
	data, ok := s.states[id]
	if !ok || json.Unmarshal(data, &now) != nil {
		return home.State{Value: unavailable}, false
	}
	return now, true
}

// measurements returns what is recorded of a state.
func (s *Session) measurements(id string, now home.State) (all []ferrule.Measurement) {
	if now.Unavailable() || s.report == nil {
		return nil
	}
	s.mu.Lock()
	signals := s.plan.Signals[id]
	s.mu.Unlock()
	for _, signal := range signals {
		if x, ok := number(signal, now); ok {
			all = append(all, ferrule.Measurement{Signal: signal.Name, Unit: signal.Unit, Values: []float64{x}, State: signal.State})
		}
	}
	return all
}

// number returns the value of a signal in a state.
func number(signal describe.Signal, now home.State) (float64, bool) {
	text := now.Value
	if signal.Attribute != "" {
		text = string(now.Attributes[signal.Attribute])
		if unquoted := ""; json.Unmarshal(now.Attributes[signal.Attribute], &unquoted) == nil {
			text = unquoted
		}
	}
	if x, ok := signal.Words[text]; ok {
		return x, true
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}

// momentary are the domains whose state is the time when something happened.
var momentary = []string{"event", "button", "input_button", "scene"}

// eventRate is the limit of events of a device.
var eventRate = ratelimit.Rate{Burst: 20, Every: time.Second / 5}

// oldEvent is the age of an event that is not passed on: Home Assistant reports the last one
// again after a restart, when it was unavailable before.
const oldEvent = time.Minute

// events passes on what happened, within the limit.
func (s *Session) events(id string, before, now home.State, at time.Time) {
	s.mu.Lock()
	i := slices.IndexFunc(s.device, func(e entity) bool { return e.id == id })
	var e entity
	if i >= 0 {
		e = s.device[i]
	}
	group := s.group
	s.mu.Unlock()
	if s.notify == nil || i < 0 || !slices.Contains(momentary, e.domain) || now.Value == before.Value {
		return
	}
	happened, err := time.Parse(time.RFC3339, now.Value)
	if err != nil || before.Unavailable() && at.Sub(happened) > oldEvent {
		return
	}
	if !s.rate.Allow(eventRate, time.Now()) {
		transport.Note(s.link, "dropped: event, limit is %d per second", time.Second/eventRate.Every)
		return
	}
	params, err := json.Marshal(map[string]any{"entity": id, "time": happened, "attributes": visible(now.Attributes, true)})
	if err != nil || len(params) > ferrule.MaxParams {
		params, _ = json.Marshal(map[string]any{"entity": id, "time": happened})
	}
	method := e.key
	if group || method == "" {
		method = id
	}
	s.notify(method, params)
}
