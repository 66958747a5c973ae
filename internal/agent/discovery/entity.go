package discovery

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Entity is one entity of a device in Home Assistant.
type Entity struct {
	Key, Component string
	// Signal is the signal that has its state; empty for none.
	Signal   string
	inverted bool
	config   map[string]any
	commands map[string]command // by what Home Assistant asks for
}

// command is the call of a command. Argument is the argument that gets the value of set.
type command struct {
	ferrule.Action
	argument string
	schema   argument
}

// payloads are what Home Assistant sends for a command.
var payloads = map[string]string{"on": "ON", "off": "OFF", "press": "PRESS", "lock": "LOCK", "unlock": "UNLOCK", "open": "OPEN", "close": "CLOSE", "stop": "STOP"}

// confirmedStates are the states of components after a command.
var confirmedStates = map[string]map[string]string{
	"switch": {"on": "ON", "off": "OFF"}, "lock": {"lock": "LOCKED", "unlock": "UNLOCKED", "open": "OPEN"},
	"cover": {"open": "open", "close": "closed"}, "valve": {"open": "open", "close": "closed"},
}

// finish sets what depends on the commands.
func (e *Entity) finish() {
	set, moves := e.commands["set"]
	switch e.Component {
	case "number":
		e.config["mode"] = "auto"
		if a := set.schema; a.Minimum != nil && a.Maximum != nil && *a.Minimum < *a.Maximum {
			e.config["min"], e.config["max"], e.config["step"] = *a.Minimum, *a.Maximum, a.step()
		}
	case "select":
		e.config["options"] = append([]string{}, set.schema.options()...)
	case "text":
		e.config["min"], e.config["max"] = min(max(set.schema.MinLength, 0), maxLength), maxLength
		if m := set.schema.MaxLength; m != nil && *m > 0 {
			e.config["max"] = min(*m, maxLength)
		}
	case "lock":
		if _, opens := e.commands["open"]; opens {
			e.config["payload_open"] = payloads["open"]
		}
	case "cover":
		for _, name := range []string{"open", "close", "stop"} {
			if _, has := e.commands[name]; !has && (name == "stop" || !moves) {
				e.config["payload_"+name] = nil
			}
		}
		if moves {
			e.config["set_position_topic"], e.config["position_topic"] = e.config["command_topic"], e.config["state_topic"]
			delete(e.config, "state_topic")
		}
	case "valve":
		if _, stops := e.commands["stop"]; stops {
			e.config["payload_stop"] = payloads["stop"]
		}
		if moves {
			e.config["reports_position"] = true
		}
	}
}

// State returns the value of the signal as Home Assistant reads it. It reports false for a
// value that the entity cannot have.
func (e *Entity) State(value float64) (string, bool) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return "", false
	}
	_, moves := e.commands["set"]
	on := (value != 0) != e.inverted
	switch e.Component {
	case "switch", "binary_sensor":
		return map[bool]string{true: "ON", false: "OFF"}[on], true
	case "lock":
		return map[bool]string{true: "LOCKED", false: "UNLOCKED"}[on], true
	case "cover", "valve":
		if !moves {
			return map[bool]string{true: "open", false: "closed"}[on], true
		}
		if e.inverted {
			value = 100 - value
		}
		return formatNumber(math.Round(math.Min(100, math.Max(0, value)))), true
	case "select":
		return e.option(value)
	case "text":
		return "", false // a signal is a number
	}
	return formatNumber(value), true
}

// option returns the option that a number stands for: its place among texts, or itself.
func (e *Entity) option(value float64) (string, bool) {
	options := e.commands["set"].schema.options()
	if text := formatNumber(value); slices.Contains(options, text) {
		return text, true
	}
	if value != math.Trunc(value) || value < 0 || value >= float64(len(options)) {
		return "", false
	}
	return options[int(value)], true
}

// formatNumber returns the shortest text of a number.
func formatNumber(v float64) string {
	if math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

var number = regexp.MustCompile(`^-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?$`)

// Command returns the call that a payload asks for, and the state that follows from it;
// empty if none does. It reports false for a payload that means nothing.
func (e *Entity) Command(payload []byte) (call ferrule.Action, state string, ok bool) {
	if len(payload) > maxPayload || !utf8.Valid(payload) {
		return call, "", false
	}
	text := string(payload)
	for name, c := range e.commands {
		if name != "set" && text == payloads[name] {
			return c.Action, e.after(name), true
		}
	}
	set, ok := e.commands["set"]
	if !ok {
		return call, "", false
	}
	value, state, ok := e.value(set, text)
	if !ok {
		return call, "", false
	}
	args := make(map[string]json.RawMessage)
	if len(set.Args) > 0 && json.Unmarshal(set.Args, &args) != nil {
		return call, "", false
	}
	args[set.argument] = value
	data, err := json.Marshal(args)
	return ferrule.Action{Tool: set.Tool, Args: data}, state, err == nil
}

// after returns the state after a command.
func (e *Entity) after(name string) string {
	state := confirmedStates[e.Component][name]
	if _, moves := e.commands["set"]; moves {
		return "" // the position says it
	}
	return state
}

// value returns the argument of set, and the state that follows from it.
func (e *Entity) value(set command, text string) (value json.RawMessage, state string, ok bool) {
	switch e.Component {
	case "select":
		i := slices.Index(set.schema.options(), text)
		if i < 0 {
			return nil, "", false
		}
		return set.schema.Enum[i], text, true
	case "text":
		if ferrule.Clean(text, maxPayload) != text {
			return nil, "", false
		}
		value, _ = json.Marshal(text)
		return value, text, true
	}
	if moves := e.Component == "cover" || e.Component == "valve"; moves {
		switch text { // what it can also be told
		case payloads["open"]:
			text = "100"
		case payloads["close"]:
			text = "0"
		}
		if e.inverted && number.MatchString(text) {
			v, _ := strconv.ParseFloat(text, 64)
			text = formatNumber(100 - v)
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !number.MatchString(text) {
		return nil, "", false
	}
	state = formatNumber(v)
	if e.Component != "number" {
		state = "" // it takes a while to get there
	}
	if strings.ContainsAny(text, ".eE") { // 5.0 is not an integer for every device
		text = formatNumber(v)
	}
	return json.RawMessage(text), state, true
}
