package describe_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// demo returns the devices of a real Home Assistant, as the hub would offer them.
func demo(t testing.TB) map[string]*home.Offer {
	t.Helper()
	data, err := os.ReadFile("testdata/demo.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Devices  []home.Device
		Services []home.Service
	}
	if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatal(err)
	}
	offers := make(map[string]*home.Offer)
	for _, d := range recorded.Devices {
		offer := &home.Offer{Device: d, Temperature: "°C"}
		for _, s := range recorded.Services {
			if slices.ContainsFunc(d.Entities, func(e home.Entity) bool { return e.Domain == s.Domain }) {
				offer.Services = append(offer.Services, s)
			}
		}
		name := d.Name
		if d.Group {
			name = d.ID
		}
		if offers[name] != nil {
			name += " (" + d.ID + ")"
		}
		offers[name] = offer
	}
	return offers
}

// described returns a device of the demo as it is described.
func described(t testing.TB, name string) (*ferrule.Manifest, *describe.Plan) {
	t.Helper()
	offer := demo(t)[name]
	if offer == nil {
		t.Fatalf("there is no device %s", name)
	}
	return describe.Device(offer)
}

// TestDemo checks that each entity of the demo has tools or signals, or a reason, and that all
// tools can be used.
func TestDemo(t *testing.T) {
	reasons := make(map[string]string)
	tools, signals, entities := 0, 0, 0
	for name, offer := range demo(t) {
		m, plan := describe.Device(offer)
		m.Bound()
		if len(m.Tools) != len(plan.Tools) || len(m.Notes) > 0 {
			t.Errorf("%s: %d tools, %d in the plan, %q", name, len(m.Tools), len(plan.Tools), m.Notes)
		}
		for _, tool := range m.Tools {
			tools++
			if _, err := schema.Compile(tool.Input); err != nil || tool.Quarantine != "" {
				t.Errorf("%s: %s: %v %s", name, tool.Name, err, tool.Quarantine)
			}
			if tool.Text == "" || strings.HasPrefix(tool.Text, "Calls the service") {
				t.Errorf("%s: %s has no text of ours: %s", name, tool.Name, tool.Text)
			}
			if len(plan.Tools[tool.Name].Entities) == 0 {
				t.Errorf("%s: %s acts on nothing", name, tool.Name)
			}
		}
		for _, e := range offer.Device.Entities {
			entities++
			signals += len(plan.Signals[e.ID])
			if reason := plan.Unused[e.ID]; reason != "" {
				reasons[e.ID] = reason
				continue
			}
			if !slices.Contains(slices.Collect(maps.Values(plan.Tools[describe.ReadState].Entities)), e.ID) {
				t.Errorf("%s: %s has no tool and no reason", name, e.ID)
			}
		}
	}
	t.Logf("%d entities: %d tools, %d signals", entities, tools, signals)
	if want := []string{"conversation.home_assistant", "stt.demo_stt", "zone.home"}; !slices.Equal(slices.Sorted(maps.Keys(reasons)), want) {
		t.Errorf("without tools: %v", reasons)
	}
	if entities != 135 {
		t.Errorf("%d entities checked", entities)
	}
}

// TestTools checks which services of a device are tools.
func TestTools(t *testing.T) {
	for name, want := range map[string]string{
		"Bed Light":                   "read_state toggle turn_off turn_on",
		"Decorative Lights":           "read_state toggle turn_off turn_on",
		"Garage Door":                 "close_cover open_cover read_state toggle",
		"Hall Window":                 "close_cover open_cover read_state set_cover_position stop_cover toggle",
		"Pergola Roof":                "close_cover_tilt open_cover_tilt read_state set_cover_tilt_position stop_cover_tilt toggle_cover_tilt",
		"HeatPump":                    "read_state set_hvac_mode set_temperature toggle turn_off turn_on",
		"Outside Temperature":         "read_state",
		"Push":                        "press read_state",
		"Speed":                       "read_state select_first select_last select_next select_option select_previous",
		"Demo Update No Install":      "clear_skipped read_state skip",
		"MyBox":                       "read_state send_message",
		"Statistics issues":           "read_state",
		"Power strip with 2 sockets":  "press read_state",
		"Outlet 1":                    "read_state toggle turn_off turn_on",
		"Text with 1 to 5 characters": "read_state set_value",
		"Backup":                      "read_state",
		"kitchen_sink":                "dock get_forecasts get_picture lock open pause read_state start_mowing unlock",
		"device_tracker":              "read_state",
		"Demo Update with Progress":   "clear_skipped install read_state skip",
		"Living Room Window":          "close_cover close_cover_tilt open_cover open_cover_tilt read_state set_cover_position set_cover_tilt_position stop_cover stop_cover_tilt toggle toggle_cover_tilt",
	} {
		m, _ := described(t, name)
		var got []string
		for _, tool := range m.Tools {
			got = append(got, tool.Name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s", name, strings.Join(got, " "), want)
		}
	}
}

// TestInput checks the arguments of tools.
func TestInput(t *testing.T) {
	for _, c := range []struct{ device, tool, allowed, refused string }{
		{"Bed Light", "turn_on", `{"brightness_pct":40,"color_temp_kelvin":2700}`, `{"color_temp_kelvin":7000}`},
		{"Bed Light", "turn_on", `{"rgb_color":[255,0,0],"effect":"a new one"}`, `{"rgb_color":[256,0,0]}`},
		{"Bed Light", "turn_on", `{"hs_color":[300,70]}`, `{"brightness_step":10}`},
		{"Bed Light", "turn_on", `{"color_name":"red"}`, `{"rgbw_color":[1,2,3,4]}`},
		{"Bed Light", "turn_on", `{}`, `{"entity_id":"light.other"}`},
		{"Office RGBW Lights", "turn_on", `{"rgbw_color":[1,2,3,4]}`, `{"rgbw_color":[1,2,3]}`},
		{"Entrance Color + White Lights", "turn_on", `{"white":true}`, `{"white":false}`},
		{"Ceiling Lights", "turn_on", `{}`, `{"effect":"rainbow"}`},
		{"Ceiling Lights", "toggle", `{}`, `{"brightness_pct":40}`},
		{"HeatPump", "set_temperature", `{"temperature":21.5}`, `{"temperature":36}`},
		{"HeatPump", "set_temperature", `{"temperature":7,"hvac_mode":"heat"}`, `{"hvac_mode":"cool"}`},
		{"HeatPump", "set_hvac_mode", `{"hvac_mode":"off"}`, `{}`},
		{"Ecobee", "set_temperature", `{"target_temp_low":20,"target_temp_high":24}`, `{"temperature":20}`},
		{"Ecobee", "set_fan_mode", `{"fan_mode":"one that the owner adds"}`, `{"fan_mode":5}`},
		{"Hvac", "set_humidity", `{"humidity":50}`, `{"humidity":100}`},
		{"Hall Window", "set_cover_position", `{"position":50}`, `{"position":101}`},
		{"PWM 1", "set_value", `{"value":0.5}`, `{"value":1.5}`},
		{"PWM 1", "set_value", `{"value":0.005}`, `{"value":"0.5"}`},
		{"Text with 1 to 5 characters", "set_value", `{"value":"abc"}`, `{"value":"abcdef"}`},
		{"Text with 1 to 5 characters", "set_value", `{"value":"a"}`, `{"value":""}`},
		{"Text with only lower case characters", "set_value", `{"value":"abc"}`, `{"value":"ABC"}`},
		{"kitchen_sink", "unlock", `{"entity":"lock.basic_lock","code":"1234"}`, `{}`},
		{"kitchen_sink", "read_state", `{}`, `{"entity":5}`},
		{"demo", "siren_turn_on", `{"entity":"siren.siren","duration":5,"tone":"fire"}`, `{"entity":"siren.siren","duration":"long"}`},
		{"demo", "get_events", `{"entity":"calendar.calendar_1","duration":{"hours":24}}`, `{"entity":"calendar.calendar_1","duration":{"weeks":1}}`},
	} {
		m, _ := described(t, c.device)
		tool := m.Tool(c.tool)
		if tool == nil {
			t.Errorf("%s has no tool %s", c.device, c.tool)
			continue
		}
		compiled, err := schema.Compile(tool.Input)
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{c.allowed: true, c.refused: false} {
			args, _, err := schema.DecodeArgs([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if wrong := compiled.Check(args); (len(wrong) == 0) != want {
				t.Errorf("%s: %s: %s: got %q", c.device, c.tool, text, wrong)
			}
		}
	}
}

// TestWithheld checks that no tool writes files or acts on entities of other devices.
func TestWithheld(t *testing.T) {
	m, plan := described(t, "demo")
	for _, name := range []string{"snapshot", "camera_snapshot", "record", "play_stream", "join", "see"} {
		if m.Tool(name) != nil {
			t.Errorf("%s is a tool", name)
		}
	}
	if tool := plan.Tools["browse_media"]; tool.Entities["media_player.browse"] == "" || tool.Entities["media_player.bedroom"] != "" {
		t.Errorf("browse_media acts on %v", tool.Entities)
	}
	for id, offered := range map[string]bool{"vacuum.0_ground_floor": true, "vacuum.2_second_floor": false, "vacuum.4_fourth_floor": false} {
		if _, ok := plan.Tools["set_fan_speed"].Entities[id]; ok != offered {
			t.Errorf("set_fan_speed acts on %s: %t", id, ok)
		}
	}
}

// TestSecrets checks that codes and passwords are marked.
func TestSecrets(t *testing.T) {
	for _, c := range []struct{ device, tool, secret string }{
		{"demo", "unlock", "code"}, {"demo", "lock", "code"}, {"demo", "alarm_disarm", "code"}, {"demo", "alarm_arm_away", "code"},
		{"Password", "set_value", "value"},
	} {
		m, plan := described(t, c.device)
		if tool := m.Tool(c.tool); tool == nil || !slices.Equal(tool.Secrets, []string{c.secret}) || !slices.Equal(plan.Tools[c.tool].Secrets, tool.Secrets) {
			t.Errorf("%s: %s: got %+v", c.device, c.tool, tool)
		}
	}
	m, plan := described(t, "Text")
	if len(m.Tool("set_value").Secrets) > 0 || len(plan.Hidden) > 0 {
		t.Errorf("a plain text is a secret: %v", plan.Hidden)
	}
	if _, plan := described(t, "Password"); !plan.Hidden["text.password"] {
		t.Error("a password can be read")
	}
	offer := &home.Offer{Device: home.Device{ID: "input_text", Group: true, Entities: []home.Entity{{ID: "input_text.note", Domain: "input_text"}}}, Services: []home.Service{
		{Domain: "input_text", Name: "set_value", Targets: []home.Target{{Domains: []string{"input_text"}}}, Fields: []home.Field{{Name: "value", Required: true, Selector: json.RawMessage(`{"text":null}`)}}},
	}}
	if m, _ := describe.Device(offer); !slices.Equal(m.Tool("set_value").Secrets, []string{"value"}) {
		t.Error("a helper that may become a password is not a secret")
	}
}

// TestSignals checks names, units and words of signals.
func TestSignals(t *testing.T) {
	for _, c := range []struct{ device, entity, want string }{
		{"Outside Temperature", "sensor.outside_temperature", "temperature °C"},
		{"Basement Floor Wet", "binary_sensor.basement_floor_wet", "moisture state"},
		{"Bed Light", "light.bed_light", "light state, light_brightness, light_color_temp_kelvin K"},
		{"AC", "switch.ac", "air_conditioner state"},
		{"Hall Window", "cover.hall_window", "cover state, cover_current_position %, cover_current_tilt_position %"},
		{"HeatPump", "climate.heatpump", "ubercool_current_temperature °C, ubercool_temperature °C, ubercool_target_temp_low °C, ubercool_target_temp_high °C, ubercool_current_humidity %, ubercool_humidity %"},
		{"PWM 1", "number.pwm_1", "pwm"},
		{"demo", "lock.front_door", "lock_front_door state"},
		{"demo", "weather.demo_weather_north", "weather_demo_weather_north_temperature °C, weather_demo_weather_north_humidity %, weather_demo_weather_north_pressure hPa, weather_demo_weather_north_wind_speed km/h, weather_demo_weather_north_visibility km"},
		{"Thermostat", "sensor.thermostat", ""},
		{"Password", "text.password", ""},
		{"device_tracker", "device_tracker.demo_paulus", ""},
	} {
		_, plan := described(t, c.device)
		var got []string
		for _, s := range plan.Signals[c.entity] {
			text := s.Name
			if s.Unit != "" {
				text += " " + s.Unit
			}
			if s.State {
				text += " state"
			}
			if err := ferrule.CheckSignal(s.Name); err != nil || s.State != (s.Words != nil) {
				t.Errorf("%s: %+v: %v", c.entity, s, err)
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: got %q, want %q", c.entity, text, c.want)
		}
	}
	if _, plan := described(t, "demo"); plan.Signals["lock.front_door"][0].Words["unlocked"] != 1 {
		t.Error("an unlocked lock is not 1")
	}
}
