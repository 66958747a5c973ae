package confirm

import (
	"encoding/json"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
)

// values has services of entities that are a value, and of those that are used once.
var values = table{
	"number.set_value":       {sets("value", same)},
	"input_number.set_value": {sets("value", same)},
	"input_number.increment": {steps("", false)},
	"input_number.decrement": {steps("", true)},
	"counter.set_value":      {sets("value", same)},
	"counter.increment":      {steps("", false)},
	"counter.decrement":      {steps("", true)},
	"counter.reset":          {isAttribute("initial")},
	"text.set_value":         {sets("value", same)},
	"input_text.set_value":   {sets("value", same)},
	"date.set_value":         {sets("date", day)},
	"time.set_value":         {sets("time", clock)},
	"datetime.set_value":     {sets("datetime", instant)},
	"input_datetime.set_datetime": {
		sets("date", day), sets("time", clock), sets("datetime", instant),
	},

	"select.select_option":         {sets("option", same)},
	"select.select_first":          {chooses(false)},
	"select.select_last":           {chooses(true)},
	"select.select_next":           {moves, only("cycle")},
	"select.select_previous":       {moves, only("cycle")},
	"input_select.select_option":   {sets("option", same)},
	"input_select.select_first":    {chooses(false)},
	"input_select.select_last":     {chooses(true)},
	"input_select.select_next":     {moves, only("cycle")},
	"input_select.select_previous": {moves, only("cycle")},
	"input_select.set_options":     {shows("options", "options", includes)},

	"timer.start":  {becomes("active"), only("duration")},
	"timer.pause":  {becomes("paused")},
	"timer.cancel": {becomes("idle")},
	"timer.finish": {becomes("idle")},

	"update.install": {rests, becomes("off"), shows("version", "installed_version", same), only("backup")},
	"update.skip":    {becomes("off")},

	// The state is when it was used last.
	"button.press":        {moves},
	"input_button.press":  {moves},
	"scene.turn_on":       {moves, only("transition")},
	"notify.send_message": {moves, only("message", "title")},

	"automation.trigger": {changes("last_triggered"), only("skip_condition")},
	"script.turn_on":     {changes("last_triggered"), only("variables")},
	"script.turn_off":    {becomes("off")},
	"script.toggle":      {},
	"todo.add_item":      {steps("", false), only("item", "due_date", "due_datetime", "description")},
}

// chooses wants the first or last option.
func chooses(last bool) clause {
	return func(s *subject) {
		only("cycle")(s)
		var options []string
		if json.Unmarshal(s.before.Attributes["options"], &options) != nil || len(options) == 0 {
			moves(s)
			return
		}
		if last {
			becomes(options[len(options)-1])(s)
		} else {
			becomes(options[0])(s)
		}
	}
}

// isAttribute wants the state to be the number in an attribute.
func isAttribute(name string) clause {
	return func(s *subject) {
		s.want(func(now home.State) bool {
			x, ok := numberOf(now.Attributes[name])
			return ok && same(x, quoted(now.Value), now)
		}, "state of %s", name)
	}
}
