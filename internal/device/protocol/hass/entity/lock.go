package entity

import (
	"crypto/subtle"
	"errors"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
)

// lock describes a lock.
func (b *builder) lock() {
	names := map[string]string{}
	for _, name := range []string{"opening", "open", "jammed", "unlocking", "locking", "unlocked", "locked"} {
		names[b.Options.Text("state_"+name, strings.ToUpper(name))] = name
	}
	convert := toNamed(names, map[string]float64{"locked": 1, "unlocked": 0, "open": 0})
	state := b.state(State{Convert: convert, Signal: true, Discrete: true}, "state_topic", "value_template")
	// A jammed lock is neither open nor closed, and somebody has to go there.
	b.state(State{Name: "jam", Event: true, Convert: func(text string) (Value, bool) {
		v, ok := convert(text)
		return v, ok && is("jammed")(v)
	}}, "state_topic", "value_template")

	to := b.sender("command_topic", "command_template")
	if to == nil {
		return
	}
	var args []property
	if format := b.Options.Text("code_format", ""); format != "" {
		args = append(args, codeArg(format))
	}
	for _, a := range []struct{ verb, text, wanted string }{
		{"lock", "Locks " + b.label + ".", "locked"},
		{"unlock", "Unlocks " + b.label + ".", "unlocked"},
		{"open", "Opens the latch of " + b.label + ".", "open"},
	} {
		payload := b.Options.Text("payload_"+a.verb, strings.ToUpper(a.verb))
		if a.verb == "open" && !b.Options.Has("payload_open") {
			continue
		}
		confirm := expectation(state, is(a.wanted))
		b.tool(action{
			suffix: a.verb, verb: a.verb, text: a.text, args: args, senders: []*sender{to},
			command: func(args map[string]any) (Command, error) {
				return single(to, payload, codeVars(args), confirm)
			},
		})
	}
}

// codeArg is the argument of a code. The pattern may be empty.
func codeArg(pattern string) property {
	const longest = 64
	return textArg("code", "Ask a person for it.", 1, longest, pattern).secret()
}

// codeVars are the variables of a template for a code. Without one, it is None.
func codeVars(args map[string]any) template.Vars {
	if code, given := argText(args, "code"); given {
		return template.Vars{"code": code}
	}
	return template.Vars{"code": nil}
}

// errCode has no detail: codes appear nowhere.
var errCode = errors.New("wrong code")

// The modes in which an alarm can be armed.
var armModes = []string{"home", "away", "night", "vacation", "custom_bypass"}

// alarm describes an alarm panel. The sender of commands checks the code in its config; the
// panel does not. It does if the code is REMOTE_CODE or REMOTE_CODE_TEXT.
func (b *builder) alarm() {
	names := map[string]string{}
	for _, name := range []string{"disarmed", "pending", "arming", "disarming", "triggered"} {
		names[name] = name
	}
	numbers := map[string]float64{"disarmed": 0, "triggered": 2}
	for _, mode := range armModes {
		names["armed_"+mode], numbers["armed_"+mode] = "armed_"+mode, 1
	}
	state := b.state(State{Convert: toNamed(names, numbers), Signal: true, Discrete: true}, "state_topic", "value_template")
	to := b.sender("command_topic", "command_template")
	if to == nil {
		return
	}
	p := panel{to: to, state: state, code: b.Options.Text("code", "")}
	modes := make([]string, 0, len(armModes))
	for _, mode := range armModes {
		if b.can("arm_" + mode) {
			modes = append(modes, mode)
		}
	}
	payloads := map[string]string{}
	for _, action := range []string{"arm_home", "arm_away", "arm_night", "arm_vacation", "arm_custom_bypass", "disarm", "trigger"} {
		payloads[action] = b.Options.Text("payload_"+action, strings.ToUpper(action))
	}
	if len(modes) > 0 {
		// While people leave, most panels say arming. That is all they say within the time
		// of a call.
		b.panelTool(p, "arm", "Arms "+b.label+".", []property{enumArg("mode", "", modes)}, func(args map[string]any) (string, func(Value) bool) {
			mode, _ := argText(args, "mode")
			return payloads["arm_"+mode], is("armed_"+mode, "arming")
		})
	}
	b.panelTool(p, "disarm", "Disarms "+b.label+".", nil, func(map[string]any) (string, func(Value) bool) {
		return payloads["disarm"], is("disarmed", "disarming")
	})
	if b.can("trigger") {
		b.panelTool(p, "trigger", "Sets off the alarm of "+b.label+".", nil, func(map[string]any) (string, func(Value) bool) {
			return payloads["trigger"], is("triggered")
		})
	}
}

// can reports whether a feature is among those of the entity. Without a list, it is.
func (b *builder) can(feature string, otherwise ...string) bool {
	list := b.Options.List("supported_features")
	if !b.Options.Has("supported_features") {
		if len(otherwise) == 0 {
			return true
		}
		list = otherwise
	}
	for _, f := range list {
		if f == feature {
			return true
		}
	}
	return false
}

// panel is what publishes the commands of an alarm panel.
type panel struct {
	to    *sender
	state string
	code  string
}

// panelTool adds a tool of an alarm panel. The arguments include a code if one has to be
// checked, or if the template of the command can have one.
func (b *builder) panelTool(p panel, verb, text string, args []property, command func(args map[string]any) (payload string, matches func(Value) bool)) {
	pattern := map[string]string{"REMOTE_CODE": `\d+$`}[p.code]
	remote := p.code == "REMOTE_CODE" || p.code == "REMOTE_CODE_TEXT"
	required := p.code != "" && b.Options.Bool("code_"+verb+"_required", true)
	switch {
	case required:
		args = append(args, codeArg(pattern))
	case p.code != "" || p.to.template != nil:
		args = append(args, codeArg(pattern).opt())
	}
	check := required && !remote
	b.tool(action{
		suffix: verb, verb: verb, text: text, args: args, senders: []*sender{p.to},
		command: func(args map[string]any) (Command, error) {
			code, _ := argText(args, "code")
			if check && subtle.ConstantTimeCompare([]byte(code), []byte(p.code)) != 1 {
				return Command{}, errCode
			}
			payload, matches := command(args)
			more := codeVars(args)
			more["action"] = payload
			return single(p.to, payload, more, expectation(p.state, matches))
		},
	})
}
