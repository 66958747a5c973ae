package entity

import (
	"math"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
)

// positions is a range of a device that stands for 0 to 100 percent. It may run backwards.
type positions struct{ closed, open float64 }

// positions reads a range from two options. One that makes no sense is the usual one.
func (b *builder) positions(closed, open string) positions {
	const most = 1 << 16
	p := positions{b.Options.Number(closed, 0), b.Options.Number(open, 100)}
	if math.Abs(p.closed) <= most && math.Abs(p.open) <= most && math.Abs(p.open-p.closed) >= 1 {
		return p
	}
	return positions{0, 100}
}

// value returns the whole number of the device that is nearest to a percentage.
func (p positions) value(percent float64) float64 {
	return math.Round(p.closed + (p.open-p.closed)*percent/100)
}

func (p positions) percent(value float64) float64 {
	return math.Round((value - p.closed) / (p.open - p.closed) * 100)
}

// toPercent is the converter of a position. One outside the range is ignored.
func (p positions) toPercent(text string) (Value, bool) {
	n, ok := parseNumber(text)
	if !ok {
		return Value{}, false
	}
	percent := p.percent(n)
	return numberValue(percent), percent >= 0 && percent <= 100
}

// near returns the condition that a position has been reached: the one that the device
// was told, in percent, give or take one.
func (p positions) near(percent float64) func(Value) bool {
	return within(p.percent(p.value(percent)), 1)
}

// resting reports whether something that moves says that it does not.
func resting(v Value) bool { return !is("opening", "closing")(v) }

// cover describes a blind, a garage door and the like.
func (b *builder) cover() {
	r := b.positions("position_closed", "position_open")
	position := b.state(State{Convert: known(field("position", r.toPercent)), Signal: true, Unit: "%"}, "position_topic", "position_template")
	suffix := ""
	if b.Options.Has("position_topic") {
		suffix = "state"
	}
	state := b.state(State{Name: suffix, Convert: b.toMovement(), Signal: suffix == "", Discrete: true}, "state_topic", "value_template")
	b.moves(mover{to: b.sender("command_topic", ""), position: position, state: state, stop: true})
	if to := b.sender("set_position_topic", "set_position_template"); to != nil {
		b.moveTo("position", "Moves "+b.label+" to a position. 0 is closed, 100 is open.", to, r, position)
	}
	tilts := b.positions("tilt_min", "tilt_max")
	tilt := b.state(State{Name: "tilt", Convert: known(field("tilt_position", tilts.toPercent)), Signal: true, Unit: "%"}, "tilt_status_topic", "tilt_status_template")
	if b.Options.Bool("tilt_optimistic", false) {
		tilt = ""
	}
	if to := b.sender("tilt_command_topic", "tilt_command_template"); to != nil {
		b.moveTo("tilt", "Tilts the slats of "+b.label+". 0 is closed, 100 is open.", to, tilts, tilt)
	}
}

// valve describes a valve. One topic has its state, its position, or both.
func (b *builder) valve() {
	r := b.positions("position_closed", "position_open")
	to, position, suffix := b.sender("command_topic", "command_template"), "", ""
	reports := b.Options.Bool("reports_position", false)
	if reports {
		position = b.state(State{Convert: known(field("position", r.toPercent)), Signal: true, Unit: "%"}, "state_topic", "value_template")
		suffix = "state"
	}
	convert := field("state", b.toMovement())
	state := b.state(State{
		Name: suffix, Signal: !reports, Discrete: true,
		Convert: func(text string) (Value, bool) {
			if _, number := parseNumber(text); number {
				return Value{}, false
			}
			return convert(text)
		},
	}, "state_topic", "value_template")
	m := mover{to: to, position: position, state: state, stop: b.Options.Has("payload_stop")}
	if reports {
		m.open, m.close = plain(r.open), plain(r.closed)
	}
	b.moves(m)
	if reports && to != nil {
		b.moveTo("position", "Moves "+b.label+" to a position. 0 is closed, 100 is open.", to, r, position)
	}
}

// movements are the numbers of what a cover or a valve says.
var movements = map[string]float64{"open": 1, "closed": 0}

// toMovement returns the converter of the state of a cover or a valve.
func (b *builder) toMovement() func(string) (Value, bool) {
	same := func(name string) string { return name }
	return toNamed(b.names(same, "open", "closed", "closing", "opening", "stopped"), movements)
}

// mover is what opens, closes and stops something.
type mover struct {
	to *sender
	// position and state are the names of states; they may be empty.
	position, state string
	open, close     any  // positions that open and close it, instead of payloads
	stop            bool // it can be stopped, unless its payload is null
}

// moves adds the tools that open, close and stop something.
func (b *builder) moves(m mover) {
	if m.to == nil {
		return
	}
	reached := func(percent float64, name string) []Expectation {
		if m.position != "" {
			return expectation(m.position, within(percent, 1))
		}
		return expectation(m.state, is(name))
	}
	stopped := fresh(expectation(m.state, resting))
	if m.state == "" {
		stopped = fresh(expectation(m.position, func(Value) bool { return true }))
	}
	for _, a := range []struct {
		verb, usual, text string
		payload           any
		percent           int // for templates
		confirm           []Expectation
	}{
		{"open", "OPEN", "Opens " + b.label + ".", m.open, 100, reached(100, "open")},
		{"close", "CLOSE", "Closes " + b.label + ".", m.close, 0, reached(0, "closed")},
		{"stop", "STOP", "Stops " + b.label + ".", nil, 0, stopped},
	} {
		if b.null("payload_"+a.verb) || a.verb == "stop" && !m.stop {
			continue
		}
		payload, more := a.payload, template.Vars{"position": a.percent}
		if payload == nil {
			payload, more = b.Options.Text("payload_"+a.verb, a.usual), nil
		}
		to, rest, confirm, moves := m.to, m.position, a.confirm, travel
		if a.verb == "stop" {
			moves = window // it must not stop something later
		}
		b.tool(action{
			suffix: a.verb, verb: a.verb, text: a.text, senders: []*sender{to},
			command: func(map[string]any) (Command, error) {
				c, err := single(to, payload, more, confirm)
				return movement(c, err, rest, moves)
			},
		})
	}
}

// moveTo adds a tool that sets a position in percent. A template has both the percentage
// and the number of the device.
func (b *builder) moveTo(name, text string, to *sender, r positions, state string) {
	variable := map[string]string{"position": "position", "tilt": "tilt_position"}[name]
	b.tool(action{
		suffix: name, verb: name, text: text, args: []property{numberArg(name, "%", 0, 100, 1)}, senders: []*sender{to},
		command: func(args map[string]any) (Command, error) {
			percent := toFloat(args[name])
			more := template.Vars{
				variable: plain(percent), "position_open": plain(r.open), "position_closed": plain(r.closed),
				"tilt_min": plain(r.closed), "tilt_max": plain(r.open),
			}
			c, err := single(to, plain(r.value(percent)), more, expectation(state, r.near(percent)))
			return movement(c, err, state, travel)
		},
	})
}
