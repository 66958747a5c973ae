package entity

import (
	"crypto/subtle"
	"errors"
	"maps"
	"slices"
	"strings"
)

// errCode has no detail: codes appear nowhere.
var errCode = errors.New("wrong code")

// The modes in which an alarm can be armed.
var armModes = []string{"home", "away", "night", "vacation", "custom_bypass"}

// alarms are the numbers of what a panel says; alarmNames are all that it says.
var (
	alarms = map[string]float64{
		"disarmed": 0, "armed_home": 1, "armed_away": 1, "armed_night": 1, "armed_vacation": 1, "armed_custom_bypass": 1, "triggered": 2,
	}
	alarmNames = func() (list []named) {
		for _, name := range slices.Sorted(maps.Keys(alarms)) {
			list = append(list, named{name, name})
		}
		return list
	}()
)

// alarm describes an alarm panel. The sender of commands checks the code in its config; the
// panel does not. It does if the code is REMOTE_CODE or REMOTE_CODE_TEXT.
func (b *builder) alarm() {
	state := b.state(State{Convert: toNamed(alarmNames, alarms), Signal: true, Discrete: true}, "state_topic", "value_template")
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
	return slices.Contains(list, feature)
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
