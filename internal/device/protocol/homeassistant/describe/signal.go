package describe

import (
	"encoding/json"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Signal is a number of an entity: its state, or an attribute.
type Signal struct {
	Name      string
	Attribute string // empty for the state
	Unit      string
	// State reports that the value is a state such as on or off, stored when it changes.
	State bool
	// Words are numbers for states that are words. All signals of a domain share them.
	Words map[string]float64
}

// The words of states.
var (
	onOff      = map[string]float64{"off": 0, "on": 1}
	openClosed = map[string]float64{"closed": 0, "open": 1}
	locked     = map[string]float64{"locked": 0, "unlocked": 1, "open": 1}
	horizon    = map[string]float64{"below_horizon": 0, "above_horizon": 1}
)

// words are the states of domains that are one of two.
var words = map[string]map[string]float64{
	"automation": onOff, "binary_sensor": onOff, "calendar": onOff, "fan": onOff, "humidifier": onOff,
	"input_boolean": onOff, "light": onOff, "remote": onOff, "schedule": onOff, "script": onOff, "siren": onOff,
	"switch": onOff, "update": onOff,
	"cover": openClosed, "valve": openClosed,
	"lock": locked,
	"sun":  horizon,
}

// numeric are domains whose states are numbers.
var numeric = set("air_quality", "counter", "input_number", "number")

// measured is an attribute that is a number. Its unit is fixed, or that of the home for
// temperatures, or in another attribute.
type measured struct{ attribute, unit, unitIn string }

const temperature = "temperature" // as a unit: that of the home

// attributes are those of each domain that are measured.
var attributes = map[string][]measured{
	"climate": {
		{"current_temperature", temperature, ""}, {"temperature", temperature, ""},
		{"target_temp_low", temperature, ""}, {"target_temp_high", temperature, ""},
		{"current_humidity", "%", ""}, {"humidity", "%", ""},
	},
	"cover":        {{"current_position", "%", ""}, {"current_tilt_position", "%", ""}},
	"fan":          {{"percentage", "%", ""}},
	"humidifier":   {{"current_humidity", "%", ""}, {"humidity", "%", ""}},
	"light":        {{"brightness", "", ""}, {"color_temp_kelvin", "K", ""}},
	"media_player": {{"volume_level", "", ""}},
	"sun":          {{"elevation", "°", ""}, {"azimuth", "°", ""}},
	"vacuum":       {{"battery_level", "%", ""}},
	"valve":        {{"current_position", "%", ""}},
	"water_heater": {{"current_temperature", temperature, ""}, {"temperature", temperature, ""}},
	"weather": {
		{"temperature", temperature, "temperature_unit"}, {"humidity", "%", ""}, {"pressure", "", "pressure_unit"},
		{"wind_speed", "", "wind_speed_unit"}, {"visibility", "", "visibility_unit"},
	},
}

// addSignals adds the signals of all entities under unique names.
func (d *device) addSignals() {
	taken := make(map[string]int)
	for _, e := range d.used {
		if d.plan.Hidden[e.ID] {
			continue
		}
		signals := d.signals(e)
		for i := range signals {
			signals[i].Name = unique(signals[i].Name, taken)
		}
		if len(signals) > 0 {
			d.plan.Signals[e.ID] = signals
		}
	}
}

// signals returns what is measured of an entity.
func (d *device) signals(e *home.Entity) (signals []Signal) {
	key := d.key(e)
	switch states := words[e.Domain]; {
	case states != nil:
		signals = append(signals, Signal{Name: key, State: true, Words: states})
	case e.Measures || numeric[e.Domain]:
		signals = append(signals, Signal{Name: key, Unit: unit(e.Unit)})
	}
	for _, m := range attributes[e.Domain] {
		s := Signal{Name: key + "_" + m.attribute, Attribute: m.attribute, Unit: m.unit}
		if m.unit == temperature {
			s.Unit = unit(d.offer.Temperature)
		}
		var said string
		if json.Unmarshal(e.Abilities[m.unitIn], &said) == nil && said != "" {
			s.Unit = unit(said)
		}
		signals = append(signals, s)
	}
	return signals
}

// unit returns a unit that a signal can have.
func unit(text string) string {
	text = ferrule.Clean(text, ferrule.MaxWord)
	if len([]rune(text)) > ferrule.MaxUnit {
		return ""
	}
	return text
}

// unique returns the name of a signal that is not taken, and takes it. The map has the number
// that was tried last, so that many equal names cost no more than others.
func unique(name string, taken map[string]int) string {
	base := ferrule.SignalName(name)
	if base == "" {
		base = "entity"
	}
	name = base
	for n := taken[base] + 1; taken[name] > 0; n++ {
		suffix := fmt.Sprintf("_%d", n)
		name = base[:min(len(base), ferrule.MaxSignal-len(suffix))] + suffix
		taken[base] = n
	}
	taken[name] = max(taken[name], 1)
	return name
}
