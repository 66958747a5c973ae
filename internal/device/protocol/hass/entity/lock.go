package entity

import (
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
)

// bolts are the numbers of what a lock says.
var bolts = map[string]float64{"locked": 1, "unlocked": 0, "open": 0}

// lock describes a lock.
func (b *builder) lock() {
	convert := toNamed(b.names(strings.ToUpper, "locked", "unlocked", "locking", "unlocking", "jammed", "open", "opening"), bolts)
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
		return template.Vars{"code": free(code)}
	}
	return template.Vars{"code": nil}
}
