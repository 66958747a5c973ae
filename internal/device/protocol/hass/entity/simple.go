package entity

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// toggle describes a switch.
func (b *builder) toggle() {
	on, off := b.Options.Text("payload_on", "ON"), b.Options.Text("payload_off", "OFF")
	state := b.state(State{
		Convert: onOff(b.Options.Text("state_on", on), b.Options.Text("state_off", off)),
		Signal:  true, Discrete: true,
	}, "state_topic", "value_template")
	s := b.sender("command_topic", "command_template")
	if s == nil {
		return
	}
	b.tool(action{
		verb: "set", text: "Switches " + b.label + " on or off.",
		args: []property{boolArg("on", "")}, senders: []*sender{s},
		command: func(args map[string]any) (Command, error) {
			payload := off
			want, _ := argBool(args, "on")
			if want {
				payload = on
			}
			return single(s, payload, nil, expect(state, boolValue(want)))
		},
	})
}

// setter adds a tool with one argument, whose value is published, and its state. The
// functions turn the argument into what is published and what is heard then.
func (b *builder) setter(p property, state State, text, quarantine string, value func(args map[string]any) (payload any, heard Value)) {
	if b.secret {
		p = p.secret()
	}
	name := b.state(state, "state_topic", "value_template")
	s := b.sender("command_topic", "command_template")
	if s == nil {
		return
	}
	b.tool(action{
		verb: "set", text: text, args: []property{p}, senders: []*sender{s}, quarantine: quarantine,
		command: func(args map[string]any) (Command, error) {
			payload, heard := value(args)
			return single(s, payload, nil, expect(name, heard))
		},
	})
}

// number describes a number in a range.
func (b *builder) number() {
	low, high, step := b.Options.Number("min", 0), b.Options.Number("max", 100), b.Options.Number("step", 1)
	unit, quarantine := b.unit(), ""
	if !(low < high) || !finite(low, high, step) || step <= 0 {
		quarantine = fmt.Sprintf("its range is from %g to %g in steps of %g", low, high, step)
		low, high, step = 0, 0, 1
	}
	text := "Sets " + b.label + "."
	if unit != "" {
		text = "Sets " + b.label + " in " + unit + "."
	}
	b.setter(numberArg("value", unit, low, high, step), State{Convert: toNumber, Unit: unit, Signal: true}, text, quarantine,
		func(args map[string]any) (any, Value) {
			n, _ := argNumber(args, "value")
			return plain(n), numberValue(n)
		})
}

func finite(numbers ...float64) bool {
	return !slices.ContainsFunc(numbers, func(n float64) bool { return math.IsNaN(n) || math.IsInf(n, 0) })
}

// choice describes a select.
func (b *builder) choice() {
	options, quarantine := b.options("options")
	b.setter(enumArg("option", "", options), State{Convert: toOption(options), Signal: true, Discrete: true},
		"Selects an option of "+b.label+".", quarantine,
		func(args map[string]any) (any, Value) {
			option, _ := argText(args, "option")
			return option, optionValue(options, option)
		})
}

// options returns the different texts of a list, and a reason for quarantine.
func (b *builder) options(key string) (options []string, quarantine string) {
	seen := map[string]bool{}
	for _, option := range b.Options.List(key) {
		if !seen[option] {
			seen[option] = true
			options = append(options, option)
		}
	}
	switch n := len(options); {
	case n == 0:
		return []string{""}, "the device lists no " + key
	case n > maxOptions:
		return options[:1], fmt.Sprintf("%s has %d entries; limit is %d", key, n, maxOptions)
	}
	return options, ""
}

// text describes a text, which may be a password.
func (b *builder) text() {
	const longest = 255
	least, most := b.Options.Number("min", 0), b.Options.Number("max", longest)
	quarantine := ""
	if !(least >= 0 && least <= most && most <= longest) {
		least, most, quarantine = 0, longest, "its length is not in a range from 0 to 255"
	}
	p := textArg("value", "", int(least), int(most), b.Options.Text("pattern", ""))
	b.setter(p, State{Convert: toText}, "Sets the text of "+b.label+".", quarantine, textOf)
}

// textOf is the value of a setter whose argument is published as it is.
func textOf(args map[string]any) (any, Value) {
	text, _ := argText(args, "value")
	return free(text), textValue(text)
}

// The patterns of dates and times. The device knows how many days a month has.
const (
	datePattern = `\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])`
	timePattern = `([01]\d|2[0-3]):[0-5]\d:[0-5]\d`
	zonePattern = `(Z|[+-]\d\d:\d\d)?`
)

func (b *builder) date() {
	b.setter(textArg("value", "For example 2026-07-31.", 0, 10, datePattern+"$"), State{Convert: toText}, "Sets the date of "+b.label+".", "", textOf)
}

func (b *builder) time() {
	b.setter(textArg("value", "For example 06:30:00.", 0, 8, timePattern+"$"), State{Convert: toText}, "Sets the time of "+b.label+".", "", textOf)
}

func (b *builder) datetime() {
	b.setter(textArg("value", "For example 2026-07-31T06:30:00+02:00.", 0, 25, datePattern+"T"+timePattern+zonePattern+"$"), State{Convert: toText},
		"Sets the date and time of "+b.label+".", "", textOf)
}

// button describes something to press.
func (b *builder) button() {
	b.trigger("press", "Presses "+b.label+".", b.Options.Text("payload_press", "PRESS"))
}

// scene describes something to activate.
func (b *builder) scene() {
	b.trigger("activate", "Activates "+b.label+".", b.Options.Text("payload_on", "ON"))
}

// trigger adds a tool without arguments that nothing confirms.
func (b *builder) trigger(verb, text, payload string) {
	s := b.sender("command_topic", "command_template")
	if s == nil {
		return
	}
	b.tool(action{
		verb: verb, text: text, senders: []*sender{s},
		command: func(map[string]any) (Command, error) { return single(s, payload, nil, nil) },
	})
}

// notify describes a text that is shown or spoken.
func (b *builder) notify() {
	b.message("send", "Sends a message to "+b.label+".", ferrule.MaxText)
}

// infrared describes a remote control: an emitter, or a receiver that learns codes.
func (b *builder) infrared() {
	const longest = 16 << 10 // a code lists the length of each pulse
	b.state(State{Convert: toText}, "state_topic", "value_template")
	b.message("send", "Sends an infrared code with "+b.label+".", longest)
}

func (b *builder) message(verb, text string, longest int) {
	s := b.sender("command_topic", "command_template")
	if s == nil {
		return
	}
	b.tool(action{
		verb: verb, text: text, args: []property{textArg("message", "", 1, longest, "")}, senders: []*sender{s},
		command: func(args map[string]any) (Command, error) {
			message, _ := argText(args, "message")
			return single(s, free(message), nil, nil)
		},
	})
}

// versions is the state of an update.
type versions struct {
	Installed  *string `json:"installed_version,omitempty"`
	Latest     *string `json:"latest_version,omitempty"`
	InProgress bool    `json:"in_progress,omitempty"`
}

// toVersions is the converter of the state of an update: an object, or only the installed
// version.
func toVersions(text string) (Value, bool) {
	if text == "" {
		return Value{}, false
	}
	var v versions
	if !strings.HasPrefix(text, "{") {
		v.Installed = &text
	} else if json.Unmarshal([]byte(text), &v) != nil {
		return Value{}, false
	}
	for _, version := range []*string{v.Installed, v.Latest} {
		if version != nil {
			*version = ferrule.Clean(*version, ferrule.MaxWord)
		}
	}
	encoded, err := json.Marshal(v)
	return Value{JSON: encoded, Number: math.NaN()}, err == nil
}

// installing reports whether the state of an update says that it has begun, or that there
// is nothing left to install.
func installing(v Value) bool {
	var now versions
	if json.Unmarshal(v.JSON, &now) != nil {
		return false
	}
	return now.InProgress || now.Installed != nil && now.Latest != nil && *now.Installed == *now.Latest
}

// update describes firmware that can be installed.
func (b *builder) update() {
	state := b.state(State{Convert: toVersions}, "state_topic", "value_template")
	b.state(State{Name: "latest", Convert: toText}, "latest_version_topic", "latest_version_template")
	s := b.sender("command_topic", "command_template")
	if s == nil || !b.Options.Has("payload_install") {
		return
	}
	payload := b.Options.Text("payload_install", "")
	b.tool(action{
		suffix: "install", verb: "install", text: "Installs the latest version of " + b.label + ".", senders: []*sender{s},
		command: func(map[string]any) (Command, error) {
			if state == "" {
				return single(s, payload, nil, nil)
			}
			return single(s, payload, nil, []Expectation{{State: state, Matches: installing}})
		},
	})
}
