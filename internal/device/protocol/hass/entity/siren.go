package entity

import (
	"encoding/json"
	"errors"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
)

// siren describes a siren. Its messages are JSON objects unless it has templates.
func (b *builder) siren() {
	const longest = 1<<16 - 1 // seconds: what a Zigbee siren can be told
	on, off := b.Options.Text("payload_on", "ON"), b.Options.Text("payload_off", "OFF")
	convert := onOff(b.Options.Text("state_on", on), b.Options.Text("state_off", off))
	state := b.state(State{Convert: field("state", convert), Signal: true, Discrete: true}, "state_topic", "state_value_template")

	var args []property
	quarantine := ""
	if b.Options.Has("available_tones") {
		var tones []string
		tones, quarantine = b.options("available_tones")
		args = append(args, enumArg("tone", "", tones).opt())
	}
	if b.Options.Bool("support_volume_set", true) {
		args = append(args, numberArg("volume_level", "From 0 to 1.", 0, 1, 0).opt())
	}
	if b.Options.Bool("support_duration", true) {
		args = append(args, numberArg("duration", "In seconds.", 1, longest, 1).opt())
	}
	names := make([]string, len(args))
	for i, a := range args {
		names[i] = a.name
	}
	tool := func(verb, text, templateKey, payload string, want Value, args []property) {
		to := b.sender("command_topic", templateKey)
		if to == nil {
			return
		}
		confirm := expect(state, want)
		b.tool(action{
			suffix: verb, verb: verb, text: text, args: args, senders: []*sender{to}, quarantine: quarantine,
			command: func(args map[string]any) (Command, error) {
				vars := template.Vars{"state": payload}
				for _, name := range names {
					if text, ok := argText(args, name); ok {
						vars[name] = text
					} else if n, ok := argNumber(args, name); ok {
						vars[name] = plain(n)
					}
				}
				return sound(to, payload, vars, confirm)
			},
		})
	}
	tool("on", "Sounds "+b.label+".", "command_template", on, boolValue(true), args)
	quarantine = ""
	tool("off", "Silences "+b.label+".", b.firstOf("command_off_template", "command_template"), off, boolValue(false), nil)
}

// sound returns the command of a siren.
func sound(to *sender, payload string, vars template.Vars, confirm []Expectation) (Command, error) {
	if to.template == nil {
		message, err := json.Marshal(map[string]any(vars)) // with sorted keys
		if err != nil {
			return Command{}, err
		}
		return single(to, string(message), nil, confirm)
	}
	c, err := single(to, payload, vars, confirm)
	// A template that gives nothing means: publish nothing.
	if err == nil && (len(c.Publish[0].Payload) == 0 || string(c.Publish[0].Payload) == "None") {
		return Command{}, errors.New("the device cannot do this")
	}
	return c, err
}
