package entity_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestStates checks what states make of payloads: the value, and the number to record.
func TestStates(t *testing.T) {
	for _, test := range []struct{ component, config, payload, want string }{
		{"sensor", `{"unit_of_measurement":"W"}`, "12.50", "12.5 records 12.5"},
		{"sensor", `{"unit_of_measurement":"W"}`, "1e-05", "0.00001 records 1e-05"},
		{"sensor", `{"unit_of_measurement":"W"}`, "None", "null"},
		{"sensor", `{"unit_of_measurement":"W"}`, "", "ignored"},
		{"sensor", `{"unit_of_measurement":"W"}`, "nan", "ignored"},
		{"sensor", `{"unit_of_measurement":"W"}`, "Infinity", "ignored"},
		{"sensor", `{"unit_of_measurement":"W"}`, "0x10", "ignored"},
		{"sensor", `{"unit_of_measurement":"W"}`, "unavailable", "ignored"},
		{"sensor", `{"state_class":"total"}`, "7", "7 records 7"},
		{"sensor", `{"value_template":"{{ value_json.a }}"}`, `{"a":21.0}`, "21 records 21"},
		{"sensor", `{"value_template":"{{ value_json.a }}"}`, `{"b":21.0}`, "ignored"},
		{"sensor", `{"value_template":"{{ value_json.a }}"}`, `{"a":null}`, "null"},
		{"sensor", `{}`, "42", "42 records 42"},
		{"sensor", `{}`, "042", `"042"`},
		{"sensor", `{}`, "a\u202eb", `"a b"`},
		{"sensor", `{"device_class":"timestamp"}`, "20260731", `"20260731"`},
		{"sensor", `{"device_class":"enum","options":["low","high"]}`, "high", `"high" records 1`},
		{"sensor", `{"device_class":"enum","options":["low","high"]}`, "other", `"other"`},
		{"binary_sensor", `{}`, "ON", "true records 1"},
		{"binary_sensor", `{"payload_on":false,"payload_off":true,"value_template":"{{ value_json[\"contact\"] }}"}`, `{"contact":false}`, "true records 1"},
		{"binary_sensor", `{"payload_on":false,"payload_off":true,"value_template":"{{ value_json[\"contact\"] }}"}`, `{"contact":true}`, "false records 0"},
		{"binary_sensor", `{}`, "on", "ignored"},
		{"binary_sensor", `{}`, "None", "null"},
		{"switch", `{}`, "OFF", "false records 0"},
		{"select", `{"options":["a","b"]}`, "b", `"b" records 1`},
		{"update", `{}`, "1.2.0", `{"installed_version":"1.2.0"}`},
		{"update", `{}`, `{"installed_version":"1","latest_version":null,"x":[]}`, `{"installed_version":"1"}`},
		{"update", `{}`, `{"installed_version":`, "ignored"},
		{"event", `{"event_types":["press"]}`, `{"event_type":"press","duration":0.5}`, `{"event_type":"press","duration":0.5}`},
		{"event", `{"event_types":["press"]}`, `{"event_type":"hold"}`, "ignored"},
		{"event", `{"event_types":["press"]}`, `press`, "ignored"},
		{"device_automation", `{"automation_type":"trigger","topic":"s","type":"action","subtype":"on","payload":"on"}`, "on", `{"subtype":"on","type":"action"}`},
		{"device_automation", `{"automation_type":"trigger","topic":"s","type":"action","subtype":"on","payload":"on"}`, "off", "ignored"},
		{"device_automation", `{"automation_type":"trigger","topic":"s","type":"action","subtype":"on","payload":"on"}`, "", "ignored"},
		{"tag", `{"topic":"s","value_template":"{{ value_json.UID }}"}`, `{"UID":"E9F35959"}`, `"E9F35959"`},
	} {
		d := describeEntity(t, test.component, "it", `{"state_topic":"s",`+strings.TrimPrefix(test.config, "{"))
		if len(d.States) != 1 || d.States[0].Topic != "s" || len(d.Tools) > 0 {
			t.Errorf("%s %s: %+v", test.component, test.config, d)
			continue
		}
		got, v := hear(t, d, "it", test.payload)
		if got != "ignored" && !math.IsNaN(v.Number) {
			got += fmt.Sprintf(" records %v", v.Number)
		}
		if got != test.want {
			t.Errorf("%s %s: %q is %s, want %s", test.component, test.config, test.payload, got, test.want)
		}
	}
}

// TestStateFlags checks units, times, secrets and events.
func TestStateFlags(t *testing.T) {
	for _, test := range []struct{ component, object, config, want string }{
		{"sensor", "a", `{"unit_of_measurement":"  C"}`, "a C signal"},
		{"sensor", "a", `{"unit_of_measurement":"10\tms"}`, "a 10 ms signal"},
		{"sensor", "a", `{"unit_of_measurement":"a very long unit of measurement"}`, "a signal"},
		{"sensor", "a", `{"unit_of_measurement":"W","expire_after":120}`, "a W signal 2m0s 0s"},
		{"sensor", "a", `{"expire_after":1e300}`, "a signal 720h0m0s 0s"},
		{"sensor", "a", `{"expire_after":-1}`, "a signal"},
		{"sensor", "a", `{"device_class":"date"}`, "a"},
		{"sensor", "pin_code", `{"unit_of_measurement":"x"}`, "pin_code x secret"},
		{"sensor", "action_code", `{}`, "action_code secret"},
		{"sensor", "max_pin_length", `{}`, "max_pin_length signal"},
		{"sensor", "fault_code", `{}`, "fault_code signal"},
		{"text", "wifi_password", `{}`, "wifi_password secret"},
		{"text", "a", `{"mode":"password"}`, "a secret"},
		{"binary_sensor", "user_code", `{"off_delay":5}`, "user_code signal discrete 0s 5s"},
		{"event", "a", `{"event_types":["x"]}`, "a event"},
		{"tag", "a", `{"topic":"s"}`, "a event"},
	} {
		d := describeEntity(t, test.component, test.object, `{"state_topic":"s",`+strings.TrimPrefix(test.config, "{"))
		if len(d.States) != 1 {
			t.Errorf("%s: %+v", test.config, d)
			continue
		}
		s := d.States[0]
		got := []string{s.Name}
		for _, flag := range []struct {
			word string
			set  bool
		}{{s.Unit, s.Unit != ""}, {"signal", s.Signal}, {"discrete", s.Discrete}, {"event", s.Event}, {"secret", s.Secret}} {
			if flag.set {
				got = append(got, flag.word)
			}
		}
		if s.ExpireAfter+s.OffDelay > 0 {
			got = append(got, s.ExpireAfter.String(), s.OffDelay.String())
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %s, want %s", test.config, got, test.want)
		}
	}
}

// TestNotes checks that what is not used is noted.
func TestNotes(t *testing.T) {
	for _, test := range []struct{ component, config, want string }{
		{"teapot", `{"command_topic":"c"}`, "teapot it: the component teapot is unknown"},
		{"camera", `{"topic":"c"}`, "camera it: left out: it shows people or where they are"},
		{"device_tracker", `{"state_topic":"c"}`, "device_tracker it: left out: it shows people or where they are"},
		{"sensor", `{"unit_of_measurement":"x"}`, "sensor it: no topic to send to or to read"},
		{"button", `{"payload_press":"x"}`, "button it: no topic to send to or to read"},
		{"sensor", `{"state_topic":"s","value_template":"{% macro f() %}{% endmacro %}"}`, "sensor it: its state cannot be read: "},
		{"device_automation", `{"automation_type":"action"}`, `device_automation it: automation of type "action"`},
	} {
		d := describeEntity(t, test.component, "it", test.config)
		if len(d.Notes) != 1 || !strings.HasPrefix(d.Notes[0], test.want) || len(d.Tools)+len(d.States) > 0 {
			t.Errorf("%s %s: %+v", test.component, test.config, d)
		}
	}
}

// FuzzDescribe describes entities of hostile devices, hears hostile payloads, and calls all
// tools. Nothing may panic, and what is shown must be bounded.
func FuzzDescribe(f *testing.F) {
	f.Add("switch", "relay", `{"command_topic":"c","state_topic":"s","value_template":"{{ value_json.a }}"}`, `{"a":"ON"}`, `{"on":true}`)
	f.Add("light", "light", `{"schema":"json","command_topic":"c","state_topic":"s","supported_color_modes":["xy","color_temp"],"brightness":true,"effect":true,"effect_list":["a"]}`, `{"state":"ON","color":{"x":1}}`, `{"color":{"x":0.1,"y":0.2}}`)
	f.Add("cover", "door", `{"command_topic":"c","position_topic":"s","set_position_topic":"p","position_open":0,"position_closed":0}`, `50`, `{"position":5}`)
	f.Add("climate", "x", `{"temperature_command_topic":"c","temperature_state_topic":"s","min_temp":"5","max_temp":-5}`, `21`, `{"temperature":21}`)
	f.Add("alarm_control_panel", "x", `{"command_topic":"c","state_topic":"s","code":"1234"}`, `disarmed`, `{"code":"1234","mode":"home"}`)
	f.Add("siren", "x", `{"command_topic":"c","available_tones":[null,1]}`, `{}`, `{"tone":"1","volume_level":0.5}`)
	f.Add("number", "x", `{"command_topic":"c","min":-1e308,"max":1e308,"step":1e-308}`, `1`, `{"value":1}`)
	f.Add("fan", "x", `{"command_topic":"c","percentage_command_topic":"p","percentage_state_topic":"s","speed_range_min":0,"speed_range_max":0}`, `1`, `{"percentage":1,"on":true}`)
	f.Fuzz(func(t *testing.T, component, object, options, payload, args string) {
		e := &discovery.Entity{Component: component, ObjectID: object}
		dec := json.NewDecoder(strings.NewReader(options))
		dec.UseNumber()
		if dec.Decode(&e.Options) != nil {
			return
		}
		d := entity.Describe(e)
		if len(d.Tools)+len(d.States)+len(d.Notes) == 0 {
			t.Error("lost without a note")
		}
		var given map[string]any
		dec = json.NewDecoder(strings.NewReader(args))
		dec.UseNumber()
		_ = dec.Decode(&given) // no arguments are fine as well
		for _, tool := range d.Tools {
			if len(tool.Name) > ferrule.MaxToolName || tool.Name == "" || tool.Class == "" || !json.Valid(tool.Input) {
				t.Errorf("%+v", tool.Tool)
			}
			_, _ = tool.Command(given)
		}
		for _, s := range d.States {
			if v, ok := s.Convert(payload); ok && !json.Valid(v.JSON) || s.ExpireAfter < 0 || s.ExpireAfter > 31*24*time.Hour || len([]rune(s.Unit)) > ferrule.MaxUnit {
				t.Errorf("%+v: %s", s, v.JSON)
			}
		}
	})
}
