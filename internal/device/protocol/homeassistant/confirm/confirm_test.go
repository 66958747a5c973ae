package confirm

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
)

// state parses VALUE or VALUE {attributes}.
func state(t testing.TB, text string) home.State {
	t.Helper()
	value, attributes, _ := strings.Cut(text, " {")
	s := home.State{Value: value}
	if attributes != "" {
		if err := json.Unmarshal([]byte("{"+attributes), &s.Attributes); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return s
}

// arguments parses arguments as a call has them.
func arguments(t testing.TB, text string) (args map[string]any) {
	t.Helper()
	if text == "" {
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&args); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return args
}

// cases has services with states that confirm them, and states that do not.
var cases = []struct{ service, args, before, yes, no string }{
	{"light.turn_on", ``, "off", "on", "off"},
	{"light.turn_on", ``, "off", "on", "unavailable"},
	{"light.turn_on", `{"brightness":0}`, "on", "off", "on"},
	{"light.turn_on", `{"brightness_pct":40}`, "off", `on {"brightness":102}`, `on {"brightness":110}`},
	{"light.turn_on", `{"brightness_pct":40}`, "off", `on {"brightness":103}`, `on {"brightness":null}`},
	{"light.turn_on", `{"rgb_color":[128,0,0]}`, "off", `on {"rgb_color":[255,0,0]}`, `on {"rgb_color":[255,80,0]}`},
	{"light.turn_on", `{"hs_color":[359,90]}`, "off", `on {"hs_color":[1.2,91]}`, `on {"hs_color":[20,90]}`},
	{"light.turn_on", `{"color_temp_kelvin":6500}`, "off", `on {"color_temp_kelvin":6535}`, `on {"color_temp_kelvin":6000}`},
	{"light.turn_on", `{"color_name":"Blue"}`, "on", `on {"rgb_color":[0,0,255]}`, `on {"rgb_color":[0,255,0]}`},
	{"light.turn_on", `{"effect":"Fire"}`, "on", `on {"effect":"Fire"}`, `on {"effect":"None"}`},
	{"light.turn_on", `{"xy_color":[0.3,0.3]}`, "on", `on {"xy_color":[0.31,0.3]}`, `on {"xy_color":[0.4,0.3]}`},
	{"light.turn_on", `{"rgbw_color":[1,2,3,4]}`, "on", `on {"rgbw_color":[1,2,3,4]}`, `on {"rgbw_color":[1,2,3]}`},
	{"light.toggle", ``, "on", "off", "on"},
	{"light.toggle", `{"brightness":10}`, "off", `on {"brightness":10}`, "on"},
	{"switch.turn_off", ``, "on", "off", "on"},
	{"switch.toggle", ``, "off", "on", "off"},
	{"camera.disable_motion_detection", ``, "idle", "idle", `idle {"motion_detection":true}`},

	{"cover.open_cover", ``, "closed", "open", "opening"},
	{"cover.open_cover", ``, `open {"current_position":10}`, `open {"current_position":99}`, `open {"current_position":50}`},
	{"cover.close_cover", ``, `open {"current_position":10}`, `closed {"current_position":0}`, `closing {"current_position":0}`},
	{"cover.stop_cover", ``, "opening", "open", "opening"},
	{"cover.set_cover_position", `{"position":50}`, `closed {"current_position":0}`, `open {"current_position":51}`, `opening {"current_position":50}`},
	{"cover.toggle", ``, "closed", "open", "closed"},
	{"cover.toggle", ``, `open {"current_position":40}`, `open {"current_position":100}`, `open {"current_position":40}`},
	{"cover.set_cover_tilt_position", `{"tilt_position":30}`, "open", `open {"current_tilt_position":30}`, `open {"current_tilt_position":0}`},
	{"valve.close_valve", ``, "open", "closed", "closing"},

	{"lock.lock", `{"code":"1"}`, "unlocked", "locked", "locking"},
	{"lock.lock", ``, "unlocked", "locked", "jammed"},
	{"lock.unlock", ``, "locked", "unlocked", "unlocking"},
	{"lock.open", ``, "locked", "open", "unlocked"},
	{"alarm_control_panel.alarm_arm_away", `{"code":"1"}`, "disarmed", "armed_away", "arming"},
	{"alarm_control_panel.alarm_arm_away", ``, "disarmed", "armed_away", "armed_home"},
	{"alarm_control_panel.alarm_disarm", ``, "armed_away", "disarmed", "pending"},

	{"climate.turn_on", ``, "off", "heat", "off"},
	{"climate.set_temperature", `{"temperature":21.5,"hvac_mode":"heat"}`, "off", `heat {"temperature":21.5}`, `cool {"temperature":21.5}`},
	{"climate.set_temperature", `{"target_temp_low":18,"target_temp_high":22}`, "heat", `heat {"target_temp_low":18,"target_temp_high":22}`, `heat {"target_temp_low":18,"target_temp_high":23}`},
	{"climate.set_aux_heat", `{"aux_heat":true}`, "heat", `heat {"aux_heat":"on"}`, `heat {"aux_heat":"off"}`},
	{"climate.toggle", ``, "off", "auto", "off"},
	{"water_heater.set_away_mode", `{"away_mode":false}`, "eco", `eco {"away_mode":"off"}`, `eco {"away_mode":"on"}`},
	{"fan.set_percentage", `{"percentage":50}`, "off", `on {"percentage":66,"percentage_step":33.33}`, `on {"percentage":66,"percentage_step":1}`},
	{"fan.set_percentage", `{"percentage":0}`, "on", "off", "on"},
	{"fan.increase_speed", ``, `on {"percentage":33}`, `on {"percentage":66}`, `on {"percentage":33}`},
	{"fan.oscillate", `{"oscillating":true}`, "on", `on {"oscillating":true}`, `on {"oscillating":false}`},

	{"media_player.turn_on", ``, "off", "idle", "standby"},
	{"media_player.media_play_pause", ``, "playing", "paused", "playing"},
	{"media_player.media_next_track", ``, `playing {"media_title":"a"}`, `playing {"media_title":"b"}`, `playing {"media_title":"a","volume_level":1}`},
	{"media_player.volume_mute", `{"is_volume_muted":true}`, "on", `on {"is_volume_muted":true}`, `on {"is_volume_muted":false}`},
	{"media_player.volume_down", ``, `on {"volume_level":0.5}`, `on {"volume_level":0.4}`, `on {"volume_level":0.6}`},
	{"media_player.play_media", `{"media_content_id":"x","media_content_type":"music"}`, `playing {"media_title":"a"}`, `playing {"media_title":"b"}`, `playing {"media_title":"a"}`},
	{"media_player.join", `{"group_members":["media_player.b"]}`, "on", `on {"group_members":["media_player.a","media_player.b"]}`, `on {"group_members":["media_player.a"]}`},

	{"vacuum.start", ``, "docked", "cleaning", "error"},
	{"vacuum.return_to_base", ``, "cleaning", "returning", "cleaning"},
	{"lawn_mower.dock", ``, "mowing", "docked", "mowing"},

	{"number.set_value", `{"value":42}`, "1", "42.0", "41"},
	{"text.set_value", `{"value":"x"}`, "y", "x", "y"},
	{"select.select_option", `{"option":"b"}`, "a", "b", "a"},
	{"select.select_last", ``, `a {"options":["a","b"]}`, "b", "a"},
	{"select.select_next", ``, "a", "b", "a"},
	{"date.set_value", `{"date":"2026-01-02"}`, "2026-01-01", "2026-01-02", "2026-01-01"},
	{"time.set_value", `{"time":"10:30"}`, "09:00:00", "10:30:00", "10:31:00"},
	{"datetime.set_value", `{"datetime":"2026-01-02 10:30:00"}`, "unknown", "2026-01-02T09:30:00+00:00", "2026-01-02T09:31:00+00:00"},
	{"datetime.set_value", `{"datetime":"2026-01-02T10:30:00+02:00"}`, "unknown", "2026-01-02T08:30:00+00:00", "2026-01-02T10:30:00+00:00"},
	{"input_datetime.set_datetime", `{"date":"2026-01-02","time":"10:30:00"}`, "unknown", "2026-01-02 10:30:00", "2026-01-02 10:31:00"},
	{"counter.increment", ``, "3", "4", "3"},
	{"counter.reset", ``, `3 {"initial":0}`, `0 {"initial":0}`, `3 {"initial":0}`},
	{"button.press", ``, "unknown", "2026-01-02T08:30:00+00:00", "unknown"},
	{"scene.turn_on", ``, "2026-01-02T08:30:00+00:00", "2026-01-02T08:31:00+00:00", "2026-01-02T08:30:00+00:00"},
	{"automation.trigger", ``, `on {"last_triggered":null}`, `on {"last_triggered":"2026-01-02T08:31:00+00:00"}`, "on"},
	{"timer.start", `{"duration":"00:01:00"}`, "idle", "active", "idle"},
	{"update.install", ``, "on", "off", `off {"in_progress":true}`},
}

func TestCases(t *testing.T) {
	for _, c := range cases {
		domain, service, _ := strings.Cut(c.service, ".")
		e := For(domain, service, arguments(t, c.args), state(t, c.before))
		if !e.Met(state(t, c.yes)) {
			t.Errorf("%s %s: %s does not confirm it: missing %q", c.service, c.args, c.yes, e.Missing(state(t, c.yes)))
		}
		if e.Met(state(t, c.no)) {
			t.Errorf("%s %s: %s confirms it", c.service, c.args, c.no)
		}
		if len(e.Unseen) > 0 {
			t.Errorf("%s %s: no state shows %q", c.service, c.args, e.Unseen)
		}
	}
}

// TestUnseen: what no state shows is not confirmed by others.
func TestUnseen(t *testing.T) {
	for call, want := range map[string][]string{
		`light.turn_on {"color_name":"burlywood","transition":2}`: {"color_name"},
		`light.turn_on {"profile":"relax"}`:                       {"profile"},
		`switch.turn_on {"x":1,"a":2}`:                            {"a", "x"},
		`media_player.play_media {"announce":true}`:               {"announce"},
	} {
		name, args, _ := strings.Cut(call, " ")
		domain, service, _ := strings.Cut(name, ".")
		if e := For(domain, service, arguments(t, args), state(t, "off")); !reflect.DeepEqual(e.Unseen, want) {
			t.Errorf("%s: got %q", call, e.Unseen)
		}
	}
	for _, service := range []string{"send_command", "clear_playlist", "nonsense"} {
		if e := For("media_player", service, nil, state(t, "on")); e.Shown() || e.Met(state(t, "on")) {
			t.Errorf("%s can be confirmed", service)
		}
	}
}

// TestWindow: a light gets the time that the caller gave it, within limits.
func TestWindow(t *testing.T) {
	for args, want := range map[string]time.Duration{
		`{}`: Window, `{"transition":10}`: 15 * time.Second, `{"transition":1e300}`: Longest, `{"transition":-1}`: Window, `{"transition":"x"}`: Window,
	} {
		if e := For("light", "turn_on", arguments(t, args), state(t, "off")); e.Window != want {
			t.Errorf("%s: got %v", args, e.Window)
		}
	}
}

// FuzzFor compares arguments of agents with states of strangers.
func FuzzFor(f *testing.F) {
	for _, c := range cases {
		f.Add(c.service, c.args, c.before, c.yes)
	}
	f.Fuzz(func(t *testing.T, name, args, before, now string) {
		parse := func(text string) home.State {
			value, attributes, _ := strings.Cut(text, " {")
			s := home.State{Value: value}
			json.Unmarshal([]byte("{"+attributes), &s.Attributes)
			return s
		}
		var decoded map[string]any
		dec := json.NewDecoder(strings.NewReader(args))
		dec.UseNumber()
		dec.Decode(&decoded)
		domain, service, _ := strings.Cut(name, ".")
		e := For(domain, service, decoded, parse(before))
		if e.Met(parse(now)) && len(e.Missing(parse(now))) > 0 || e.Met(home.State{Value: "unavailable"}) || e.Window > Longest {
			t.Errorf("%s: %+v", name, e)
		}
	})
}
