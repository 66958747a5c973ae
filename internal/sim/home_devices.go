package sim

import (
	"encoding/json"
	"math"
	"strconv"
)

// object is a JSON object.
type object = map[string]any

// homeDevices returns the devices of a home: one of each sort that people have most.
func homeDevices() []*homeDevice {
	return []*homeDevice{
		homeLamp("kitchen_lamp", "Kitchen lamp", "Kitchen"), homePlug(), homeBlind(), homeLock(), homeThermostat(), homeContact(), homeClimate(),
	}
}

// homeBase is the first level of all topics of the home.
const homeBase = "home"

// describe returns the description of an entity: what all have, and the rest.
func describe(name, id, model, area string, rest object) object {
	base := homeBase + "/" + id
	out := object{
		"unique_id": id + "_" + model, "object_id": id, "state_topic": base,
		"availability": []object{{"topic": base + "/available"}},
		"device": object{
			"identifiers": []string{"ferrule_sim_" + id}, "name": name, "manufacturer": "Ferrule", "model": "Simulated " + model,
			"model_id": "SIM-" + model, "sw_version": "1.0", "suggested_area": area,
		},
		"origin": object{"name": "ferrule sim", "sw": "1.0"},
	}
	for key, value := range rest {
		out[key] = value
	}
	return out
}

func value(key string) string { return `{{ value_json["` + key + `"] }}` }

// homeLamp is a lamp with brightness and color, as Zigbee2MQTT describes one.
func homeLamp(id, name, area string) *homeDevice {
	const model = "lamp"
	return &homeDevice{
		name: id, base: homeBase + "/" + id,
		state: object{"state": "OFF", "brightness": 254.0, "color_temp": 370.0, "color": object{"x": 0.46, "y": 0.41}, "color_mode": "color_temp"},
		configs: object{"light/" + id + "/light": describe(name, id, model, area, object{
			"name": nil, "schema": "json", "command_topic": homeBase + "/" + id + "/set", "brightness": true, "brightness_scale": 254,
			"supported_color_modes": []string{"xy", "color_temp"}, "min_mireds": 153, "max_mireds": 500, "effect": true, "effect_list": []string{"blink", "breathe"},
		})},
		commands: map[string]func(object, string) object{"set": jsonCommand("state", "brightness", "color", "color_temp", "effect")},
	}
}

// homePlug is a plug that measures power, as one message for the whole device.
func homePlug() *homeDevice {
	const id = "kettle_plug"
	base := homeBase + "/" + id
	return &homeDevice{
		name: id, base: base, state: object{"relay": "OFF", "power": 0.0, "energy": 12.5},
		configs: object{"device/" + id: object{
			"dev": object{"ids": "ferrule_sim_" + id, "name": "Kettle plug", "mf": "Ferrule", "mdl": "Simulated plug", "mdl_id": "SIM-plug", "sw": "1.0", "sa": "Kitchen"},
			"o":   object{"name": "ferrule sim", "sw": "1.0"}, "avty_t": base + "/available", "stat_t": base,
			"cmps": object{
				"relay":  object{"p": "switch", "uniq_id": id + "_relay", "name": nil, "dev_cla": "outlet", "cmd_t": base + "/set", "val_tpl": value("relay")},
				"power":  object{"p": "sensor", "uniq_id": id + "_power", "dev_cla": "power", "unit_of_meas": "W", "stat_cla": "measurement", "val_tpl": value("power")},
				"energy": object{"p": "sensor", "uniq_id": id + "_energy", "dev_cla": "energy", "unit_of_meas": "kWh", "stat_cla": "total_increasing", "val_tpl": value("energy")},
			},
		}},
		commands: map[string]func(object, string) object{"set": func(_ object, payload string) object {
			power := map[string]float64{"ON": 1800, "OFF": 0}
			w, known := power[payload]
			if !known {
				return nil
			}
			return object{"relay": payload, "power": w}
		}},
		drift: func(state object, n int) {
			if w, _ := state["power"].(float64); w > 0 {
				state["energy"] = state["energy"].(float64) + 0.01
				state["power"] = 1800 + 20*math.Sin(float64(n))
			}
		},
	}
}

// homeBlind is a roller blind that takes a while.
func homeBlind() *homeDevice {
	const id, name, model, area = "bedroom_blind", "Bedroom blind", "blind", "Bedroom"
	return &homeDevice{
		name: id, base: homeBase + "/" + id, state: object{"position": 100.0}, moves: "position",
		configs: object{"cover/" + id + "/cover": describe(name, id, model, area, object{
			"name": nil, "device_class": "blind", "command_topic": homeBase + "/" + id + "/set", "set_position_topic": homeBase + "/" + id + "/position",
			"position_topic": homeBase + "/" + id, "position_template": value("position"), "value_template": `{{ 'open' if value_json.position > 0 else 'closed' }}`,
		})},
		commands: map[string]func(object, string) object{
			"set": func(state object, payload string) object {
				switch payload {
				case "OPEN":
					return object{"position": 100.0}
				case "CLOSE":
					return object{"position": 0.0}
				case "STOP":
					return object{"position": state["position"]}
				}
				return nil
			},
			"position": func(_ object, payload string) object {
				n, err := strconv.ParseFloat(payload, 64)
				if err != nil || n < 0 || n > 100 {
					return nil
				}
				return object{"position": n}
			},
		},
	}
}

// homeLock is the lock of the front door, as ESPHome describes one.
func homeLock() *homeDevice {
	const id, name, model, area = "front_door", "Front door", "lock", "Hall"
	states := map[string]string{"LOCK": "LOCKED", "UNLOCK": "UNLOCKED"}
	return &homeDevice{
		name: id, base: homeBase + "/" + id, state: object{"lock": "LOCKED", "battery": 90.0},
		configs: object{
			"lock/" + id + "/lock": describe(name, id, model, area, object{
				"name": nil, "command_topic": homeBase + "/" + id + "/command", "value_template": value("lock"),
			}),
			"sensor/" + id + "/battery": describe(name, id, model, area, object{
				"unique_id": id + "_battery", "device_class": "battery", "unit_of_measurement": "%", "state_class": "measurement", "value_template": value("battery"),
			}),
		},
		commands: map[string]func(object, string) object{"command": func(_ object, payload string) object {
			if state, known := states[payload]; known {
				return object{"lock": state}
			}
			return nil
		}},
	}
}

// homeThermostat is a radiator thermostat.
func homeThermostat() *homeDevice {
	const id, name, model, area = "bathroom_heating", "Bathroom heating", "thermostat", "Bathroom"
	base := homeBase + "/" + id
	return &homeDevice{
		name: id, base: base, state: object{"local_temperature": 21.3, "setpoint": 20.0, "system_mode": "heat"},
		configs: object{"climate/" + id + "/climate": describe(name, id, model, area, object{
			"name": nil, "min_temp": "5", "max_temp": "30", "temp_step": 0.5, "temperature_unit": "C", "modes": []string{"off", "auto", "heat"},
			"current_temperature_topic": base, "current_temperature_template": value("local_temperature"),
			"temperature_command_topic": base + "/set/setpoint", "temperature_state_topic": base, "temperature_state_template": value("setpoint"),
			"mode_command_topic": base + "/set/system_mode", "mode_state_topic": base, "mode_state_template": value("system_mode"),
		})},
		commands: map[string]func(object, string) object{
			"set/setpoint": func(_ object, payload string) object {
				n, err := strconv.ParseFloat(payload, 64)
				if err != nil {
					return nil
				}
				return object{"setpoint": n}
			},
			"set/system_mode": func(_ object, payload string) object { return object{"system_mode": payload} },
		},
		drift: func(state object, n int) { state["local_temperature"] = 21 + math.Round(10*math.Sin(float64(n)/20))/10 },
	}
}

// homeContact is a contact at the back door, with a battery.
func homeContact() *homeDevice {
	const id, name, model, area = "back_door", "Back door", "contact", "Hall"
	return &homeDevice{
		name: id, base: homeBase + "/" + id, state: object{"contact": true, "battery": 77.0},
		configs: object{
			"binary_sensor/" + id + "/contact": describe(name, id, model, area, object{
				"device_class": "door", "payload_on": false, "payload_off": true, "value_template": value("contact"),
			}),
			"sensor/" + id + "/battery": describe(name, id, model, area, object{
				"unique_id": id + "_battery", "device_class": "battery", "entity_category": "diagnostic", "unit_of_measurement": "%", "state_class": "measurement", "value_template": value("battery"),
			}),
		},
		drift: func(state object, n int) { state["contact"] = n%10 != 9 },
	}
}

// homeClimate measures temperature and humidity.
func homeClimate() *homeDevice {
	const id, name, model, area = "living_room", "Living room", "climate sensor", "Living room"
	sensor := func(key, class, unit string) object {
		return describe(name, id, model, area, object{"unique_id": id + "_" + key, "device_class": class, "unit_of_measurement": unit, "state_class": "measurement", "value_template": value(key)})
	}
	return &homeDevice{
		name: id, base: homeBase + "/" + id, state: object{"temperature": 21.5, "humidity": 45.0},
		configs: object{
			"sensor/" + id + "/temperature": sensor("temperature", "temperature", "°C"),
			"sensor/" + id + "/humidity":    sensor("humidity", "humidity", "%"),
		},
		drift: func(state object, n int) {
			state["temperature"] = 21.5 + math.Round(20*math.Sin(float64(n)/30))/10
			state["humidity"] = 45 + math.Round(5*math.Cos(float64(n)/30))
		},
	}
}

// jsonCommand obeys commands that are JSON with some of these members.
func jsonCommand(members ...string) func(object, string) object {
	return func(_ object, payload string) object {
		var said object
		if json.Unmarshal([]byte(payload), &said) != nil {
			return nil
		}
		changes := make(object)
		for _, name := range members {
			if value, ok := said[name]; ok {
				changes[name] = value
			}
		}
		return changes
	}
}
