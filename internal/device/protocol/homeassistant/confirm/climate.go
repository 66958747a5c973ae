package confirm

import (
	"encoding/json"
	"math"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
)

// byDegree is by how much a temperature may differ: thermostats show tenths.
const byDegree = 0.051

// climates has services of what makes air and water comfortable.
var climates = table{
	"climate.turn_on":  {leaves("off")},
	"climate.turn_off": {becomes("off")},
	"climate.toggle":   {offOrNot},
	"climate.set_temperature": {
		shows("temperature", "temperature", near(byDegree)), shows("target_temp_high", "target_temp_high", near(byDegree)),
		shows("target_temp_low", "target_temp_low", near(byDegree)), sets("hvac_mode", same),
	},
	"climate.set_hvac_mode":             {sets("hvac_mode", same)},
	"climate.set_preset_mode":           {shows("preset_mode", "preset_mode", same)},
	"climate.set_fan_mode":              {shows("fan_mode", "fan_mode", same)},
	"climate.set_swing_mode":            {shows("swing_mode", "swing_mode", same)},
	"climate.set_swing_horizontal_mode": {shows("swing_horizontal_mode", "swing_horizontal_mode", same)},
	"climate.set_humidity":              {shows("humidity", "humidity", near(1))},
	"climate.set_aux_heat":              {shows("aux_heat", "aux_heat", same)},

	"water_heater.turn_on":            {leaves("off")},
	"water_heater.turn_off":           {becomes("off")},
	"water_heater.set_temperature":    {shows("temperature", "temperature", near(byDegree)), sets("operation_mode", same)},
	"water_heater.set_operation_mode": {sets("operation_mode", same)},
	"water_heater.set_away_mode":      {shows("away_mode", "away_mode", same)},

	"humidifier.set_humidity": {shows("humidity", "humidity", near(1))},
	"humidifier.set_mode":     {shows("mode", "mode", same)},

	"fan.turn_on":         {fanOn},
	"fan.set_percentage":  {fanOn},
	"fan.set_preset_mode": {shows("preset_mode", "preset_mode", same)},
	"fan.oscillate":       {shows("oscillating", "oscillating", same)},
	"fan.set_direction":   {shows("direction", "direction", same)},
	"fan.increase_speed":  {steps("percentage", false), only("percentage_step")},
	"fan.decrease_speed":  {steps("percentage", true), only("percentage_step")},
}

// offOrNot wants something that was off to be on in some mode, and the other way.
func offOrNot(s *subject) {
	if s.before.Value == "off" {
		leaves("off")(s)
	} else {
		becomes("off")(s)
	}
}

func fanOn(s *subject) {
	if x, ok := numberOfAny(s.args["percentage"]); ok && x == 0 {
		s.seen["percentage"] = true
		becomes("off")(s)
		return
	}
	becomes("on")(s)
	shows("percentage", "percentage", speed)(s)
	shows("preset_mode", "preset_mode", same)(s)
}

// speed compares percentages of a fan, which has few speeds.
func speed(argument any, got json.RawMessage, now home.State) bool {
	step, _ := numberOf(now.Attributes["percentage_step"])
	return near(math.Max(1, math.Min(step, 50)))(argument, got, now)
}
