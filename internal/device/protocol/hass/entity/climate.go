package entity

import "math"

// temperatures are the limits of a device that gives none, in its own unit.
type temperatures struct{ low, high, step float64 }

// climate describes a thermostat or an air conditioner.
func (b *builder) climate() {
	unit, defaults := "°C", temperatures{7, 35, 1}
	if b.fahrenheit("C") {
		unit, defaults = "°F", temperatures{44.6, 95, 1}
	}
	b.heating(unit, defaults)
	b.choices("mode", "mode", "Sets the mode of "+b.label+".", "modes", "auto", "off", "cool", "heat", "dry", "fan_only")
	b.choices("fan_mode", "fan_mode", "Sets the fan mode of "+b.label+".", "fan_modes", "auto", "low", "medium", "high")
	b.choices("swing_mode", "swing_mode", "Sets the swing mode of "+b.label+".", "swing_modes", "on", "off")
	b.choices("swing_horizontal_mode", "swing_horizontal_mode", "Sets the horizontal swing mode of "+b.label+".", "swing_horizontal_modes", "on", "off")
	b.choices("preset_mode", "preset_mode", "Sets the preset mode of "+b.label+".", "preset_modes")
	b.numbers(setting{
		prefix: "target_humidity", name: "target_humidity", text: "Sets the humidity that " + b.label + " keeps.",
		arg: property{name: "humidity"},
	}, "%", b.Options.Number("min_humidity", 30), b.Options.Number("max_humidity", 99), 1)
	b.reads("humidity", "%", "current_humidity_topic", "current_humidity_template")
	b.reads("action", "", "action_topic", "action_template")
}

// waterHeater describes a boiler.
func (b *builder) waterHeater() {
	unit, defaults := "°C", temperatures{43.3, 60, 0}
	if b.fahrenheit("F") {
		unit, defaults = "°F", temperatures{110, 140, 0}
	}
	b.heating(unit, defaults)
	b.choices("mode", "mode", "Sets the mode of "+b.label+".", "modes", "off", "eco", "electric", "gas", "heat_pump", "high_demand", "performance")
}

// fahrenheit reports whether temperatures are in degrees Fahrenheit.
func (b *builder) fahrenheit(otherwise string) bool {
	unit := b.Options.Text("temperature_unit", otherwise)
	return unit == "F" || unit == "°F"
}

// heating adds what thermostats and boilers have in common.
func (b *builder) heating(unit string, defaults temperatures) {
	low, high := b.Options.Number("min_temp", defaults.low), b.Options.Number("max_temp", defaults.high)
	step := b.Options.Number("temp_step", defaults.step)
	// Limits that are no multiples of the step still allow the values between them.
	if step == 1 && low != math.Trunc(low) {
		step = 0
	}
	set := func(prefix, name, state, text string) {
		b.numbers(setting{prefix: prefix, name: name, state: state, text: text, arg: property{name: "temperature"}}, unit, low, high, step)
	}
	set("temperature", "temperature", "setpoint", "Sets the temperature that "+b.label+" keeps.")
	set("temperature_low", "temperature_low", "setpoint_low", "Sets the temperature below which "+b.label+" heats.")
	set("temperature_high", "temperature_high", "setpoint_high", "Sets the temperature above which "+b.label+" cools.")
	b.onOffSetting("power", "power", "Switches "+b.label+" on or off.", b.Options.Text("payload_on", "ON"), b.Options.Text("payload_off", "OFF"))
	b.reads("temperature", unit, "current_temperature_topic", "current_temperature_template")
}
