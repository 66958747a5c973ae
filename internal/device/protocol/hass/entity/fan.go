package entity

import "math"

// fan describes a fan.
func (b *builder) fan() {
	b.main("Switches " + b.label + " on or off.")
	speeds := speedRange{b.Options.Number("speed_range_min", 1), b.Options.Number("speed_range_max", 100)}
	s := setting{
		prefix: "percentage", name: "percentage", text: "Sets the speed of " + b.label + ".",
		arg:     numberArg("percentage", "%", 1, 100, 1),
		measure: State{Convert: known(speeds.toPercent), Signal: true, Unit: "%"},
		// The device has steps: the one that is next above the percentage confirms it.
		convert: func(arg any) (any, func(Value) bool) {
			speed := speeds.speed(toFloat(arg))
			return plain(speed), within(speeds.percent(speed), 1)
		},
	}
	if !(speeds.low >= 0 && speeds.low < speeds.high && speeds.high <= 1<<16) {
		s.quarantine = "its range of speeds is not valid"
	}
	b.setting(s)
	b.choices("preset_mode", "preset_mode", "Sets the preset mode of "+b.label+".", "preset_modes")
	b.onOffSetting("oscillation", "oscillation", "Switches the oscillation of "+b.label+" on or off.",
		b.Options.Text("payload_oscillation_on", "oscillate_on"), b.Options.Text("payload_oscillation_off", "oscillate_off"))
	b.choices("direction", "direction", "Sets the direction of "+b.label+".", "", "forward", "reverse")
}

// speedRange is the lowest and the highest speed of a fan that is on.
type speedRange struct{ low, high float64 }

// speed returns the speed for a percentage: every speed has an equal share of them.
func (r speedRange) speed(percent float64) float64 {
	return math.Ceil((r.high-r.low+1)*percent/100 + r.low - 1)
}

func (r speedRange) percent(speed float64) float64 {
	return math.Trunc((speed - r.low + 1) * 100 / (r.high - r.low + 1))
}

func (r speedRange) toPercent(text string) (Value, bool) {
	speed, ok := parseNumber(text)
	if !ok {
		return Value{}, false
	}
	percent := r.percent(speed)
	return numberValue(percent), percent >= 0 && percent <= 100
}

// humidifier describes a humidifier or a dehumidifier.
func (b *builder) humidifier() {
	b.main("Switches " + b.label + " on or off.")
	b.numbers(setting{
		prefix: "target_humidity", name: "target_humidity", text: "Sets the humidity that " + b.label + " keeps.",
		arg: property{name: "humidity"},
	}, "%", b.Options.Number("min_humidity", 0), b.Options.Number("max_humidity", 100), 1)
	b.choices("mode", "mode", "Sets the mode of "+b.label+".", "modes")
	b.reads("humidity", "%", "current_humidity_topic", "current_humidity_template")
	b.reads("action", "", "action_topic", "action_template")
}
