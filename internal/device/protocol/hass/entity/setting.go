package entity

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// setting is something that an entity reads and publishes on topics of its own, for example
// the mode of a thermostat: PREFIX_command_topic, PREFIX_command_template,
// PREFIX_state_topic, and PREFIX_state_template or PREFIX_value_template. Without a command
// topic it is only a state, without a state topic only a tool.
type setting struct {
	prefix string
	// name is the suffix of the tool and of the state, and the verb of the class. state is
	// another suffix of the state.
	name, state string
	text        string
	arg         property
	measure     State // how the state is read
	// convert returns what is published for the argument, and what confirms it.
	convert    func(arg any) (payload any, matches func(Value) bool)
	quarantine string
}

// setting adds the tool and the state of a setting.
func (b *builder) setting(s setting) {
	s.measure.Name = s.state
	if s.state == "" {
		s.measure.Name = s.name
	}
	state := b.state(s.measure, s.prefix+"_state_topic", b.firstOf(s.prefix+"_state_template", s.prefix+"_value_template"))
	to := b.sender(s.prefix+"_command_topic", s.prefix+"_command_template")
	if to == nil {
		return
	}
	arg, convert := s.arg.name, s.convert
	b.tool(action{
		suffix: s.name, verb: s.name, text: s.text, args: []property{s.arg}, senders: []*sender{to}, quarantine: s.quarantine,
		command: func(args map[string]any) (Command, error) {
			payload, matches := convert(args[arg])
			return single(to, payload, nil, expectation(state, matches))
		},
	})
}

// firstOf returns the first of these options that the entity has. The components that
// consist of settings have a common template for what has none of its own.
func (b *builder) firstOf(keys ...string) string {
	for _, key := range keys {
		if b.Options.Has(key) {
			return key
		}
	}
	if b.Component == "climate" || b.Component == "water_heater" {
		return "value_template"
	}
	return ""
}

// choices adds a setting with a choice of texts. listKey is the option that lists them.
func (b *builder) choices(prefix, name, text, listKey string, otherwise ...string) {
	options, quarantine := otherwise, ""
	if b.Options.Has(listKey) || len(otherwise) == 0 {
		options, quarantine = b.options(listKey)
	}
	b.setting(setting{
		prefix: prefix, name: name, text: text, quarantine: quarantine,
		arg:     enumArg(name, "", options),
		measure: State{Convert: toOption(options), Signal: true, Discrete: true},
		convert: func(arg any) (any, func(Value) bool) {
			text, _ := arg.(string)
			return text, optionValue(options, text).equal
		},
	})
}

// onOffSetting adds a setting that is on or off.
func (b *builder) onOffSetting(prefix, name, text, on, off string) {
	b.setting(setting{
		prefix: prefix, name: name, text: text,
		arg:     boolArg("on", ""),
		measure: State{Convert: onOff(on, off), Signal: true, Discrete: true},
		convert: func(arg any) (any, func(Value) bool) {
			if arg == true {
				return on, boolValue(true).equal
			}
			return off, boolValue(false).equal
		},
	})
}

// numbers adds a setting that is a number. Devices round it to steps of their own: less
// than half a step of the argument apart is the same.
func (b *builder) numbers(s setting, unit string, low, high, step float64) {
	if !finite(low, high, step) || low > high || step < 0 {
		s.quarantine = "its range is not valid"
		low, high, step = 0, 0, 1
	}
	tolerance := max(step, 0.1) / 2
	s.arg = numberArg(s.arg.name, unit, low, high, step)
	s.measure = State{Convert: toNumber, Signal: true, Unit: unit}
	s.convert = func(arg any) (any, func(Value) bool) {
		n := toFloat(arg)
		return plain(n), func(v Value) bool { return math.Abs(v.Number-n) < tolerance }
	}
	b.setting(s)
}

// main adds the tool that switches an entity on or off, and its state.
func (b *builder) main(text string) {
	on, off := b.Options.Text("payload_on", "ON"), b.Options.Text("payload_off", "OFF")
	state := b.state(State{Convert: onOff(on, off), Signal: true, Discrete: true}, "state_topic", "state_value_template")
	to := b.sender("command_topic", "command_template")
	if to == nil {
		return
	}
	b.tool(action{
		verb: "set", text: text, args: []property{boolArg("on", "")}, senders: []*sender{to},
		command: func(args map[string]any) (Command, error) {
			if want, _ := argBool(args, "on"); want {
				return single(to, on, nil, expect(state, boolValue(true)))
			}
			return single(to, off, nil, expect(state, boolValue(false)))
		},
	})
}

// reads adds a state that cannot be set. It is a number if it has a unit.
func (b *builder) reads(name, unit, topicKey, templateKey string) {
	s := State{Name: name, Unit: unit, Convert: toNumber, Signal: true}
	if unit == "" {
		s.Convert, s.Signal = toText, false
	}
	b.state(s, topicKey, b.firstOf(templateKey))
}

// shortNames are the states that are named without their entity, if that is the main
// function of its device: brightness, not light_brightness. Few devices have something else
// with one of these names.
var shortNames = []string{"brightness", "color_temp", "temperature", "setpoint"}

// stateName returns the name of a state.
func (b *builder) stateName(suffix string) string {
	if b.name == b.Component && slices.Contains(shortNames, suffix) {
		return suffix
	}
	return b.suffixed(suffix)
}

// expectation returns the expectation that a state matches, or none if the name is empty.
func expectation(state string, matches func(Value) bool) []Expectation {
	if state == "" {
		return nil
	}
	return []Expectation{{State: state, Matches: matches}}
}

// fresh marks expectations that only what is heard after the command meets.
func fresh(all []Expectation) []Expectation {
	for i := range all {
		all[i].Fresh = true
	}
	return all
}

// travel is how long covers and valves may move.
const travel = 60 * time.Second

// movement returns a command for something that moves until the position rests.
func movement(c Command, err error, rest string, within time.Duration) (Command, error) {
	if len(c.Expect) > 0 {
		c.Window, c.Rest = within, rest
	}
	return c, err
}

// press adds a tool without arguments that publishes one payload.
func (b *builder) press(suffix, text string, to *sender, payload string, confirm []Expectation) {
	b.tool(action{
		suffix: suffix, verb: suffix, text: text, senders: []*sender{to},
		command: func(map[string]any) (Command, error) { return single(to, payload, nil, confirm) },
	})
}

// word matches what a state may be called. It has no digits, because some locks say codes.
var word = regexp.MustCompile(`^[A-Za-z][A-Za-z _-]{0,31}$`)

// named is a payload that stands for a state.
type named struct{ payload, name string }

// names returns the names of states with their payloads. Those are the options state_NAME,
// or else what usual returns.
func (b *builder) names(usual func(name string) string, all ...string) []named {
	list := make([]named, len(all))
	for i, name := range all {
		list[i] = named{b.Options.Text("state_"+name, usual(name)), name}
	}
	return list
}

// toNamed returns the converter of a state whose payloads have names. Another word is
// passed on as it is, and everything else is unknown: nothing may hide that the device has
// entered another state. Numbers are recorded for the names that have one.
func toNamed(list []named, numbers map[string]float64) func(string) (Value, bool) {
	return known(func(text string) (Value, bool) {
		i := slices.IndexFunc(list, func(n named) bool { return n.payload == text })
		switch {
		case i < 0 && word.MatchString(text):
			return textValue(text), true
		case i < 0:
			return unknown, true
		}
		v := textValue(list[i].name)
		if n, ok := numbers[list[i].name]; ok {
			v.Number = n
		}
		return v, true
	})
}

// is returns a condition that a value is one of these texts.
func is(texts ...string) func(Value) bool {
	return func(v Value) bool {
		var text string
		return json.Unmarshal(v.JSON, &text) == nil && slices.Contains(texts, text)
	}
}

// within returns a condition that a value is a number, give or take a tolerance.
func within(want, tolerance float64) func(Value) bool {
	return func(v Value) bool { return math.Abs(v.Number-want) <= tolerance }
}

// field returns a converter for a text that may be a JSON object: then it converts one of
// its values, else the text itself.
func field(name string, convert func(string) (Value, bool)) func(string) (Value, bool) {
	return func(text string) (Value, bool) {
		if !strings.HasPrefix(text, "{") {
			return convert(text)
		}
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &object) != nil {
			return Value{}, false
		}
		value := string(object[name])
		if value == "null" {
			return unknown, true
		}
		var quoted string
		if json.Unmarshal(object[name], &quoted) == nil {
			value = quoted
		}
		if value == "" {
			return Value{}, false
		}
		return convert(value)
	}
}

// toFloat returns an argument that is a number.
func toFloat(arg any) float64 {
	n, _ := argNumber(map[string]any{"": arg}, "")
	return n
}

// null reports whether an option is there as null, which means that the device cannot.
func (b *builder) null(key string) bool {
	value, there := b.Options[key]
	return there && value == nil
}
