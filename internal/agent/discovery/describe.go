package discovery

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of what is published of one device.
const (
	maxEntities = 256
	maxOptions  = 64
	maxPayload  = 4096 // of a command
	maxLength   = 255  // characters of a state
)

// builder collects the entities of a device.
type builder struct {
	in   Input
	out  *Description
	used map[string]bool // signals that are the state of another entity
}

// put adds an entity with a component. Keys that are in use stay as they are.
func (b *builder) put(key string, e *Entity) {
	if key = ferrule.SignalName(key); key == "" || b.out.Entities[key] != nil || len(b.out.Entities) >= maxEntities {
		return
	}
	e.Key = key
	e.config["platform"] = e.Component
	e.config["unique_id"] = b.out.Key + "_" + e.Component + "_" + key
	if e.config["name"] == nil {
		e.config["name"] = title(key)
	}
	n := b.in.Node
	if len(e.commands) > 0 {
		e.config["command_topic"] = n.command(b.out.Key, key)
	}
	if e.Component != "button" {
		e.config["state_topic"] = n.state(b.out.Key, key)
	}
	e.finish()
	if b.used == nil {
		b.used = make(map[string]bool)
	}
	b.used[e.Signal] = true
	b.out.Entities[key] = e
}

// tool returns a tool that may be offered, or nil. One that endangers is offered only if the
// owner asked for it.
func (b *builder) tool(name string, asked bool) *ferrule.Tool {
	t := b.in.Manifest.Tool(name)
	switch {
	case t == nil, t.Quarantine != "", t.UserOnly, !b.in.Seen.Tool(b.in.Device, t):
		return nil
	case !asked && (t.Effect != ferrule.Changes || len(t.Secrets) > 0 || t.Poll > 0): // what is polled has signals
		return nil
	}
	return t
}

// owners adds what the owner's overlays say.
func (b *builder) owners() {
	for _, key := range slices.Sorted(maps.Keys(b.in.Manifest.Entities)) {
		said := b.in.Manifest.Entities[key]
		e := &Entity{Component: said.Component, Signal: said.Signal, inverted: said.Inverted, config: make(map[string]any), commands: make(map[string]command)}
		if said.Name != "" {
			e.config["name"] = said.Name
		}
		if said.Class != "" {
			e.config["device_class"] = said.Class
		}
		missing := false
		for _, name := range slices.Sorted(maps.Keys(said.Commands)) {
			c := said.Commands[name]
			t := b.tool(c.Tool, true)
			if t == nil {
				missing = true
				continue
			}
			e.commands[name] = command{Action: c.Action, argument: c.Argument, schema: argumentOf(t, c.Argument)}
		}
		switch {
		case said.Component == ferrule.EntityNone || missing:
		case strings.HasSuffix(said.Component, "sensor"):
			e.describeSignal(b.signal(said.Signal))
			b.put(key, e)
		default:
			b.put(key, e)
		}
	}
}

// hidden reports whether the owner has said something about a key, or does not want it.
func (b *builder) hidden(key string) bool {
	_, said := b.in.Manifest.Entities[ferrule.SignalName(key)]
	return said
}

func (b *builder) signal(name string) Signal {
	i := slices.IndexFunc(b.in.Signals, func(s Signal) bool { return s.Name == name })
	if i < 0 {
		return Signal{Name: name}
	}
	return b.in.Signals[i]
}

// tools adds tools that have at most one argument.
func (b *builder) tools() {
	for i := range b.in.Manifest.Tools {
		t := b.tool(b.in.Manifest.Tools[i].Name, false)
		if t == nil || b.hidden(t.Name) {
			continue
		}
		argument, schema, ok := onlyArgument(t)
		if !ok {
			continue
		}
		name := t.Title
		if argument == "" {
			b.put(t.Name, button(t.Name, nil, name))
			continue
		}
		signal := b.stateOf(t.Name, argument)
		set := command{Action: ferrule.Action{Tool: t.Name}, argument: argument, schema: schema}
		switch {
		case schema.Type == "boolean" && signal == "":
			for _, on := range []bool{true, false} {
				key := t.Name + map[bool]string{true: "_on", false: "_off"}[on]
				args, _ := json.Marshal(map[string]bool{argument: on})
				b.put(key, button(t.Name, args, ""))
			}
		case schema.Type == "boolean":
			e := &Entity{Component: "switch", Signal: signal, config: named(name), commands: make(map[string]command)}
			for key, on := range map[string]bool{"on": true, "off": false} {
				args, _ := json.Marshal(map[string]bool{argument: on})
				e.commands[key] = command{Action: ferrule.Action{Tool: t.Name, Args: args}}
			}
			b.put(t.Name, e)
		case signal == "" || schema.component() == "":
		default:
			e := &Entity{Component: schema.component(), Signal: signal, config: named(name), commands: map[string]command{"set": set}}
			if unit := b.signal(signal).Unit; unit != "" && e.Component == "number" {
				e.config["unit_of_measurement"] = unit
			}
			b.put(t.Name, e)
		}
	}
}

func named(name string) map[string]any {
	if name == "" {
		return make(map[string]any)
	}
	return map[string]any{"name": name}
}

func button(tool string, args json.RawMessage, name string) *Entity {
	return &Entity{Component: "button", config: named(name), commands: map[string]command{"press": {Action: ferrule.Action{Tool: tool, Args: args}}}}
}

// stateOf returns the signal that has the state which a tool sets: one with its name, with
// or without the argument, where set and get count as the same. It returns "" if there is none.
func (b *builder) stateOf(tool, argument string) string {
	tool = ferrule.SignalName(tool)
	what := strings.TrimPrefix(tool, "set_")
	for _, name := range []string{tool, what, "get_" + what} {
		for _, name := range []string{name, ferrule.SignalName(name + "_" + argument)} {
			if slices.ContainsFunc(b.in.Signals, func(s Signal) bool { return s.Name == name }) {
				return name
			}
		}
	}
	return ""
}

// signals adds the signals that are not the state of something else.
func (b *builder) signals() {
	for _, s := range b.in.Signals {
		if b.used[s.Name] || b.hidden(s.Name) {
			continue
		}
		e := &Entity{Component: "sensor", Signal: s.Name, config: make(map[string]any)}
		if s.Binary {
			e.Component = "binary_sensor"
		}
		e.describeSignal(s)
		b.put(s.Name, e)
	}
}

// others adds what is about the device as a whole.
func (b *builder) others() {
	if len(b.in.Events) > 0 {
		b.put(eventsKey, &Entity{Component: "event", config: map[string]any{"name": "Events", "event_types": b.in.Events}})
	}
	for _, e := range b.out.Entities {
		if len(e.commands) > 0 {
			b.put(outcomeKey, &Entity{Component: "sensor", config: map[string]any{
				"name": "Last command", "entity_category": "diagnostic", "icon": "mdi:check-network-outline",
				"json_attributes_topic": b.in.Node.attributes(b.out.Key, outcomeKey),
			}})
			return
		}
	}
}

// units are device classes by unit, if the unit has one class and Home Assistant takes both
// together. It refuses an entity otherwise.
var units = map[string]string{
	"°C": "temperature", "°F": "temperature", "K": "temperature",
	"V": "voltage", "mV": "voltage", "A": "current", "mA": "current", "W": "power", "kW": "power",
	"lx": "illuminance", "hPa": "atmospheric_pressure", "Pa": "pressure", "kPa": "pressure", "bar": "pressure",
	"dBm": "signal_strength", "Hz": "frequency", "kHz": "frequency", "MHz": "frequency",
	"m/s": "speed", "km/h": "speed", "s": "duration", "min": "duration", "h": "duration",
	"mm": "distance", "cm": "distance", "m": "distance", "km": "distance", "g": "weight", "kg": "weight",
}

// describeSignal sets what Home Assistant needs to know of a measured value.
func (e *Entity) describeSignal(s Signal) {
	if e.Component != "sensor" {
		return
	}
	if s.Unit != "" {
		e.config["unit_of_measurement"] = s.Unit
		if class := units[s.Unit]; class != "" && e.config["device_class"] == nil {
			e.config["device_class"] = class
		}
	}
	if !s.State {
		e.config["state_class"] = "measurement"
	}
}

// argument is the schema of an argument, as far as it matters here.
type argument struct {
	Type       any               `json:"type"`
	Enum       []json.RawMessage `json:"enum"`
	Minimum    *float64          `json:"minimum"`
	Maximum    *float64          `json:"maximum"`
	MultipleOf float64           `json:"multipleOf"`
	MinLength  int               `json:"minLength"`
	MaxLength  *int              `json:"maxLength"`
}

type toolSchema struct {
	Properties map[string]argument `json:"properties"`
	Required   []string            `json:"required"`
}

// onlyArgument returns the argument that a call of a tool needs: none, the only required one,
// the only one, or the only boolean if none is required. It reports false if there are more.
func onlyArgument(t *ferrule.Tool) (name string, a argument, ok bool) {
	if len(t.Input) == 0 {
		return "", a, false // it takes anything
	}
	var s toolSchema
	if json.Unmarshal(t.Input, &s) != nil || len(s.Required) > 1 {
		return "", a, false
	}
	switch {
	case len(s.Required) == 1:
		a, ok = s.Properties[s.Required[0]]
		return s.Required[0], a, ok
	case len(s.Properties) == 0:
		return "", a, true
	case len(s.Properties) == 1:
		for name, a = range s.Properties {
			return name, a, true
		}
	}
	for key, one := range s.Properties {
		if one.Type == "boolean" {
			if ok {
				return "", a, false
			}
			name, a, ok = key, one, true
		}
	}
	return name, a, ok
}

// argumentOf returns the schema of an argument; empty if it is not known.
func argumentOf(t *ferrule.Tool, name string) argument {
	var s toolSchema
	json.Unmarshal(t.Input, &s) // it stays empty
	return s.Properties[name]
}

// component returns the component for a value; empty if there is none.
func (a argument) component() string {
	switch {
	case len(a.Enum) > 0 && len(a.Enum) <= maxOptions && a.options() != nil:
		return "select"
	case len(a.Enum) > 0:
		return ""
	case (a.Type == "number" || a.Type == "integer") && a.Minimum != nil && a.Maximum != nil && *a.Minimum < *a.Maximum:
		return "number"
	case a.Type == "string":
		return "text"
	}
	return ""
}

// options returns the texts of an enum, or nil if one is not a text or a number.
func (a argument) options() (all []string) {
	for _, raw := range a.Enum {
		var text string
		var number json.Number
		switch {
		case json.Unmarshal(raw, &text) == nil && text != "":
			all = append(all, text)
		case json.Unmarshal(raw, &number) == nil && number != "":
			all = append(all, number.String())
		default:
			return nil
		}
	}
	return all
}

// step returns the step of a number, at least the smallest that Home Assistant takes.
func (a argument) step() float64 {
	switch {
	case a.MultipleOf > 0:
		return math.Max(a.MultipleOf, 0.001)
	case a.Type == "integer":
		return 1
	}
	return math.Max(math.Pow(10, math.Floor(math.Log10((*a.Maximum-*a.Minimum)/1000))), 0.001)
}

// title returns a key as a name for people.
func title(key string) string {
	words := strings.Join(strings.FieldsFunc(key, func(r rune) bool { return r == '_' || r == '-' || r == '.' }), " ")
	if words == "" {
		return key
	}
	return fmt.Sprintf("%s%s", strings.ToUpper(words[:1]), words[1:])
}
