package confirm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// table has clauses by DOMAIN.SERVICE.
type table map[string][]clause

// clause adds to what a service must bring about.
type clause func(s *subject)

// subject is a service with its arguments.
type subject struct {
	args   map[string]any
	before home.State
	expect *Expectation
	seen   map[string]bool // arguments that some state shows, or that change only how it is done
}

func (s *subject) want(holds func(now home.State) bool, format string, args ...any) {
	s.expect.wants = append(s.expect.wants, want{fmt.Sprintf(format, args...), holds})
}

// arg returns an argument. It counts as seen.
func (s *subject) arg(name string) (value any, ok bool) {
	if value, ok = s.args[name]; ok {
		s.seen[name] = true
	}
	return value, ok && value != nil
}

// becomes wants one of these states.
func becomes(states ...string) clause {
	return func(s *subject) {
		s.want(func(now home.State) bool { return slices.Contains(states, now.Value) }, "state %s", strings.Join(states, " or "))
	}
}

// leaves wants another state than these.
func leaves(states ...string) clause {
	return func(s *subject) {
		s.want(func(now home.State) bool { return !slices.Contains(states, now.Value) && now.Value != unknown }, "a state that is not %s", strings.Join(states, " or "))
	}
}

// unknown is the state of an entity that has not reported one.
const unknown = "unknown"

// flips wants the other of two states.
func flips(one, other string) clause {
	return func(s *subject) {
		switch s.before.Value {
		case one:
			becomes(other)(s)
		case other:
			becomes(one)(s)
		default:
			moves(s)
		}
	}
}

// moves wants a state other than before. The states of buttons, scenes and events are the
// time when they were used, so they are another one each time.
func moves(s *subject) {
	before := s.before.Value
	s.want(func(now home.State) bool { return now.Value != before && now.Value != unknown }, "another state than %s", before)
}

// rests wants an entity that is not on its way.
func rests(s *subject) {
	domain := s.expect.domain
	s.want(func(now home.State) bool { return !moving(domain, now) }, "rest")
}

// shows wants an argument to be seen in an attribute.
func shows(argument, attribute string, equal comparison) clause {
	return func(s *subject) {
		value, ok := s.arg(argument)
		if !ok {
			return
		}
		s.want(func(now home.State) bool { return equal(value, now.Attributes[attribute], now) }, "%s %v", attribute, value)
	}
}

// sets wants an argument to be the state.
func sets(argument string, equal comparison) clause {
	return func(s *subject) {
		value, ok := s.arg(argument)
		if !ok {
			return
		}
		s.want(func(now home.State) bool { return equal(value, quoted(now.Value), now) }, "state %v", value)
	}
}

// has wants an attribute with a value.
func has(attribute string, value any, equal comparison) clause {
	return func(s *subject) {
		s.want(func(now home.State) bool { return equal(value, now.Attributes[attribute], now) }, "%s %v", attribute, value)
	}
}

// changes wants one of these attributes to be another than before.
func changes(attributes ...string) clause {
	return func(s *subject) {
		s.want(func(now home.State) bool { return changed(s.before, now, attributes) }, "another %s", strings.Join(attributes, " or "))
	}
}

func changed(before, now home.State, attributes []string) bool {
	return slices.ContainsFunc(attributes, func(a string) bool {
		old, is := before.Attributes[a], now.Attributes[a]
		return !null(is) && !bytes.Equal(old, is)
	})
}

// steps wants a number to be higher than before, or lower if down. The number is an
// attribute, or the state if that is empty.
func steps(attribute string, down bool) clause {
	number := func(s home.State) (float64, bool) {
		if attribute == "" {
			return numberOf(quoted(s.Value))
		}
		return numberOf(s.Attributes[attribute])
	}
	return func(s *subject) {
		before, known := number(s.before)
		text := "a higher "
		if down {
			text = "a lower "
		}
		if attribute == "" {
			text += "state"
		} else {
			text += attribute
		}
		s.want(func(now home.State) bool {
			is, ok := number(now)
			return ok && known && (!down && is > before || down && is < before)
		}, "%s", text)
	}
}

// only counts arguments as seen that change how something is done, not what.
func only(names ...string) clause {
	return func(s *subject) {
		for _, name := range names {
			s.seen[name] = true
		}
	}
}

func null(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

func quoted(text string) json.RawMessage { return ferrule.AppendString(nil, text) }
