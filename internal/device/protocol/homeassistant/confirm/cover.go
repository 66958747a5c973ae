package confirm

import "github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"

// byPosition is by how much a cover may miss a position, in percent.
const byPosition = 2

// covers has services of covers and valves. They take their time, and are done when they
// rest. A cover that is partly open is open, so the position counts if it has one.
var covers = table{
	"cover.open_cover":              {reaches("open", "current_position", 100)},
	"cover.close_cover":             {reaches("closed", "current_position", 0)},
	"cover.stop_cover":              {stops},
	"cover.toggle":                  {coverToggle},
	"cover.set_cover_position":      {rests, shows("position", "current_position", near(byPosition))},
	"cover.open_cover_tilt":         {rests, has("current_tilt_position", 100, near(byPosition))},
	"cover.close_cover_tilt":        {rests, has("current_tilt_position", 0, near(byPosition))},
	"cover.set_cover_tilt_position": {rests, shows("tilt_position", "current_tilt_position", near(byPosition))},
	"cover.toggle_cover_tilt":       {rests, changes("current_tilt_position")},

	"valve.open_valve":         {reaches("open", "current_position", 100)},
	"valve.close_valve":        {reaches("closed", "current_position", 0)},
	"valve.stop_valve":         {stops},
	"valve.toggle":             {coverToggle},
	"valve.set_valve_position": {rests, shows("position", "current_position", near(byPosition))},
}

// stops wants rest, at once.
func stops(s *subject) {
	s.expect.stops = true
	rests(s)
}

// reaches wants a state at rest, and a position if the entity reports one.
func reaches(state, attribute string, position float64) clause {
	return func(s *subject) {
		becomes(state)(s)
		if _, ok := numberOf(s.before.Attributes[attribute]); ok {
			has(attribute, position, near(byPosition))(s)
		}
	}
}

// coverToggle wants what the state before leads to. One that moved stops or turns.
func coverToggle(s *subject) {
	position, known := numberOf(s.before.Attributes["current_position"])
	switch {
	case moving(s.expect.domain, s.before):
		rests(s)
	case s.before.Value == "closed":
		reaches("open", "current_position", 100)(s)
	case s.before.Value == "open" && known && position < 100-byPosition: // either way
		rests(s)
		s.want(func(now home.State) bool { return changed(s.before, now, []string{"current_position"}) }, "another position")
	default:
		reaches("closed", "current_position", 0)(s)
	}
}
