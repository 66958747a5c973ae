// Package tasmota translates what Tasmota says about itself into a discovery message of Home
// Assistant. Tasmota has messages of its own, retained under tasmota/discovery/MAC.
//
//	tasmota/discovery/MAC/config   --+
//	tasmota/discovery/MAC/sensors  --+--Translate--> PREFIX/device/MAC/config
//
// The result passes the same checks as every discovery message.
package tasmota

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// Filter is the subscription for everything that Tasmota says about itself.
const Filter = "tasmota/discovery/+/+"

// ParseTopic returns the MAC and the part, which is config or sensors, of a topic. It
// reports false for other topics.
func ParseTopic(topic string) (mac, part string, ok bool) {
	levels := strings.Split(topic, "/")
	if len(levels) != 4 || levels[0] != "tasmota" || levels[1] != "discovery" {
		return "", "", false
	}
	mac, part = levels[2], levels[3]
	isMAC := len(mac) == 12 && strings.Trim(mac, "0123456789ABCDEFabcdef") == ""
	return mac, part, isMAC && (part == "config" || part == "sensors")
}

// maxSensors limits the sensors of a device; each is a number in its telemetry.
const maxSensors = 64

// about is what the config of a device says.
type about struct {
	Device  string         `json:"dn"`
	Names   []string       `json:"fn"`
	MAC     string         `json:"mac"`
	Module  string         `json:"md"`
	Version string         `json:"sw"`
	Topic   string         `json:"t"`
	Full    string         `json:"ft"`
	Prefix  []string       `json:"tp"`
	Offline string         `json:"ofln"`
	Online  string         `json:"onln"`
	States  []string       `json:"state"`
	Relays  []int          `json:"rl"`
	Light   int            `json:"lt_st"`
	Options map[string]any `json:"so"`
}

// The sorts of relays.
const (
	relay   = 1
	light   = 2
	shutter = 3
)

// object is a JSON object.
type object = map[string]any

// Translate returns the payload of a discovery message for a whole device. Sensors may be
// empty.
func Translate(config, sensors []byte) ([]byte, error) {
	var a about
	if err := decode(config, &a); err != nil {
		return nil, fmt.Errorf("the config is not understood: %w", err)
	}
	if len(a.Prefix) != 3 || a.Topic == "" || a.Full == "" || a.MAC == "" {
		return nil, errors.New("the config has no topic")
	}
	parts := a.relays()
	if len(sensors) > 0 {
		var telemetry struct {
			Values object `json:"sn"`
		}
		if err := decode(sensors, &telemetry); err != nil {
			return nil, fmt.Errorf("the sensors are not understood: %w", err)
		}
		a.sensors(parts, telemetry.Values)
	}
	if len(parts) == 0 {
		return nil, errors.New("it has neither a relay nor a sensor")
	}
	return json.Marshal(object{
		"device": object{
			"identifiers": []string{"tasmota_" + a.MAC}, "connections": [][]string{{"mac", a.MAC}},
			"name": a.Device, "manufacturer": "Tasmota", "model": a.Module, "sw_version": a.Version,
		},
		"origin":             object{"name": "Tasmota", "sw_version": a.Version},
		"availability_topic": a.topic(2, "LWT"), "payload_available": cmp.Or(a.Online, "Online"), "payload_not_available": cmp.Or(a.Offline, "Offline"),
		"components": parts,
	})
}

// decode decodes a message, in which no name stands twice.
func decode(data []byte, into any) error {
	if err := strictjson.Check(data); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// topic returns a topic of the device: prefix 0 is for commands, 1 for their results and 2 for
// telemetry.
func (a *about) topic(prefix int, name string) string {
	full := strings.NewReplacer("%prefix%", a.Prefix[prefix], "%topic%", a.Topic).Replace(a.Full)
	return strings.TrimSuffix(full, "/") + "/" + name
}

// relays returns the entities of the relays, by name.
func (a *about) relays() object {
	parts := make(object)
	used := 0
	for _, sort := range a.Relays {
		if sort != 0 {
			used++
		}
	}
	shutters := 0
	for i, sort := range a.Relays {
		power := fmt.Sprintf("POWER%d", i+1)
		key := power
		if used == 1 && a.Options["26"] != 1.0 {
			key = "POWER" // a single relay has no number in results
		}
		switch sort {
		case relay:
			parts[fmt.Sprintf("relay_%d", i+1)] = a.relay("switch", i, power, key)
		case light:
			parts[fmt.Sprintf("light_%d", i+1)] = a.light(i, power, key)
		case shutter: // two relays move one shutter
			if shutters++; shutters%2 == 1 {
				parts[fmt.Sprintf("shutter_%d", (shutters+1)/2)] = a.shutter((shutters + 1) / 2)
			}
		}
	}
	return parts
}

// relay returns an entity that can be switched.
func (a *about) relay(component string, i int, power, key string) object {
	entity := object{
		"platform": component, "unique_id": fmt.Sprintf("%s_%s_%d", a.MAC, component, i+1),
		"command_topic": a.topic(0, power), "state_topic": a.topic(1, "RESULT"), "payload_on": "ON", "payload_off": "OFF",
		"value_template": `{{ value_json["` + key + `"] }}`,
	}
	if len(a.States) > 1 && a.States[0] != "" && a.States[1] != "" {
		entity["state_off"], entity["state_on"] = a.States[0], a.States[1]
	}
	if i < len(a.Names) && a.Names[i] != "" {
		entity["name"] = a.Names[i]
	}
	return entity
}

// light returns a light. Its abilities follow from its number of channels.
func (a *about) light(i int, power, key string) object {
	entity := a.relay("light", i, power, key)
	entity["state_value_template"] = entity["value_template"]
	delete(entity, "value_template")
	delete(entity, "state_on")
	delete(entity, "state_off")
	set := func(name, command, template string) {
		entity[name+"_command_topic"] = a.topic(0, command)
		entity[name+"_state_topic"] = a.topic(1, "RESULT")
		entity[name+"_value_template"] = template
	}
	const dimmer, white, rgb = 1, 2, 3
	if a.Light >= dimmer {
		set("brightness", "Dimmer", "{{ value_json.Dimmer }}")
		entity["brightness_scale"] = 100
	}
	if a.Light == white || a.Light == 5 {
		set("color_temp", "CT", "{{ value_json.CT }}")
		entity["min_mireds"], entity["max_mireds"] = 153, 500
	}
	if a.Light >= rgb {
		set("rgb", "Color2", "{{ value_json.Color.split(',')[0:3]|join(',') }}")
	}
	return entity
}

// shutter returns a cover.
func (a *about) shutter(n int) object {
	return object{
		"platform": "cover", "unique_id": fmt.Sprintf("%s_shutter_%d", a.MAC, n), "device_class": "shutter",
		"command_topic": a.topic(0, "Backlog"), "payload_open": fmt.Sprintf("ShutterOpen%d", n),
		"payload_close": fmt.Sprintf("ShutterClose%d", n), "payload_stop": fmt.Sprintf("ShutterStop%d", n),
		"set_position_topic": a.topic(0, fmt.Sprintf("ShutterPosition%d", n)), "position_topic": a.topic(1, "RESULT"),
		"position_template": fmt.Sprintf("{{ value_json.Shutter%d.Position }}", n),
	}
}

// units are the units of values by their names; a device says its own for some.
var units = map[string]string{
	"Humidity": "%", "DewPoint": "TempUnit", "Temperature": "TempUnit", "Pressure": "PressureUnit", "SeaPressure": "PressureUnit", "Illuminance": "lx",
	"Power": "W", "ApparentPower": "VA", "ReactivePower": "var", "Voltage": "V", "Current": "A", "Frequency": "Hz",
	"Total": "kWh", "Today": "kWh", "Yesterday": "kWh", "CarbonDioxide": "ppm", "Distance": "cm",
}

// sensors adds an entity for each number in the telemetry.
func (a *about) sensors(parts, values object) {
	count := 0
	for _, sensor := range slices.Sorted(maps.Keys(values)) {
		fields, ok := values[sensor].(object)
		if !ok {
			continue
		}
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			_, number := fields[field].(float64)
			if count++; !number || count > maxSensors || strings.ContainsAny(sensor+field, "\"\\{}%") {
				continue
			}
			entity := object{
				"platform": "sensor", "unique_id": a.MAC + "_" + sensor + "_" + field, "name": sensor + " " + field,
				"state_topic": a.topic(2, "SENSOR"), "value_template": `{{ value_json["` + sensor + `"]["` + field + `"] }}`, "state_class": "measurement",
			}
			unit := units[field]
			if own, said := values[unit].(string); said {
				unit = own
			}
			if unit == "TempUnit" {
				unit = "C"
			}
			if unit != "" && unit != "PressureUnit" {
				entity["unit_of_measurement"] = strings.Replace(unit, "C", "°C", 1)
			}
			parts[sensor+"_"+field] = entity
		}
	}
}
