package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// homeStep is a call of an agent to a device of Home Assistant, and what comes of it.
type homeStep struct {
	device, tool, args string
	// entity is the one whose state is compared with Home Assistant's own; empty for the one in
	// the result. State is what it should be.
	entity, state string
	// attribute is NAME=VALUE; empty for none.
	attribute string
	already   bool
	// note is set if the call is not confirmed.
	note string
}

// homeSteps use each sort of device twice: there and back.
var homeSteps = []homeStep{
	{device: "bed-light", tool: "turn_on", args: `{"brightness_pct":40}`, entity: "light.bed_light", state: "on", attribute: "brightness=102"},
	{device: "bed-light", tool: "turn_on", args: `{}`, entity: "light.bed_light", state: "on", already: true},
	{device: "bed-light", tool: "turn_on", args: `{"rgb_color":[255,0,0]}`, entity: "light.bed_light", state: "on"},
	{device: "bed-light", tool: "turn_on", args: `{"color_temp_kelvin":3000}`, entity: "light.bed_light", state: "on"},
	{device: "bed-light", tool: "turn_on", args: `{"effect":"none"}`, entity: "light.bed_light", state: "on", attribute: "effect=none"},
	{device: "bed-light", tool: "turn_on", args: `{"effect":"rainbow"}`, entity: "light.bed_light", state: "on", attribute: "effect=rainbow"},
	{device: "bed-light", tool: "turn_off", args: `{}`, entity: "light.bed_light", state: "off"},

	{device: "hall-window", tool: "open_cover", args: `{}`, entity: "cover.hall_window", state: "open", attribute: "current_position=100"},
	{device: "hall-window", tool: "set_cover_position", args: `{"position":70}`, entity: "cover.hall_window", state: "open", attribute: "current_position=70"},
	{device: "hall-window", tool: "set_cover_position", args: `{"position":70}`, entity: "cover.hall_window", state: "open", already: true},

	{device: "demo", tool: "unlock", args: `{"entity":"lock.front_door"}`, entity: "lock.front_door", state: "unlocked"},
	{device: "demo", tool: "lock", args: `{"entity":"lock.front_door"}`, entity: "lock.front_door", state: "locked"},
	{device: "demo", tool: "unlock", args: `{"entity":"lock.poorly_installed_door"}`, entity: "lock.poorly_installed_door", state: "unlocked"},
	{device: "demo", tool: "lock", args: `{"entity":"lock.poorly_installed_door"}`, entity: "lock.poorly_installed_door", state: "jammed", note: "the device gave up: jammed"},

	{device: "hvac", tool: "set_temperature", args: `{"temperature":24}`, entity: "climate.hvac", state: "cool", attribute: "temperature=24"},
	{device: "hvac", tool: "set_hvac_mode", args: `{"hvac_mode":"heat"}`, entity: "climate.hvac", state: "heat"},
	{device: "hvac", tool: "turn_off", args: `{}`, entity: "climate.hvac", state: "off"},
	{device: "hvac", tool: "set_temperature", args: `{"temperature":21,"hvac_mode":"cool"}`, entity: "climate.hvac", state: "cool", attribute: "temperature=21"},

	{device: "demo", tool: "media_pause", args: `{"entity":"media_player.walkman"}`, entity: "media_player.walkman", state: "paused"},
	{device: "demo", tool: "media_play", args: `{"entity":"media_player.walkman"}`, entity: "media_player.walkman", state: "playing"},
	{device: "demo", tool: "volume_set", args: `{"entity":"media_player.walkman","volume_level":0.3}`, entity: "media_player.walkman", state: "playing", attribute: "volume_level=0.3"},
	{device: "demo", tool: "volume_set", args: `{"entity":"media_player.walkman","volume_level":1}`, entity: "media_player.walkman", state: "playing", attribute: "volume_level=1"},
	{device: "demo", tool: "media_next_track", args: `{"entity":"media_player.walkman"}`, entity: "media_player.walkman", state: "playing"},
	{device: "demo", tool: "media_previous_track", args: `{"entity":"media_player.walkman"}`, entity: "media_player.walkman", state: "playing"},

	{device: "demo", tool: "start", args: `{"entity":"vacuum.0_ground_floor"}`, entity: "vacuum.0_ground_floor", state: "cleaning"},
	{device: "demo", tool: "set_fan_speed", args: `{"entity":"vacuum.0_ground_floor","fan_speed":"max"}`, entity: "vacuum.0_ground_floor", state: "cleaning", attribute: "fan_speed=max"},
	{device: "demo", tool: "set_fan_speed", args: `{"entity":"vacuum.0_ground_floor","fan_speed":"min"}`, entity: "vacuum.0_ground_floor", state: "cleaning", attribute: "fan_speed=min"},
	{device: "demo", tool: "pause", args: `{"entity":"vacuum.0_ground_floor"}`, entity: "vacuum.0_ground_floor", state: "paused"},

	{device: "demo", tool: "alarm_arm_home", args: `{"entity":"alarm_control_panel.security","code":"1234"}`, entity: "alarm_control_panel.security", state: "armed_home"},
	{device: "demo", tool: "alarm_disarm", args: `{"entity":"alarm_control_panel.security","code":"1234"}`, entity: "alarm_control_panel.security", state: "disarmed"},
}

// TestHomeUse: an agent uses devices of a real Home Assistant, over stdio and over HTTP. Each
// result says whether the state confirms it, and Home Assistant agrees.
func TestHomeUse(t *testing.T) {
	ha := homeassistant.Start(t, homeassistant.Options{})
	g := startGateway(t, nil, withHomeAssistant(ha, func(h *config.Home) { h.All = true }))
	for _, id := range []string{"bed-light", "hall-window", "hvac", "demo"} {
		g.online(id)
	}
	for name, agent := range map[string]*testAgent{"HTTP": dialAgent(t, g, modern, "/mcp"), "stdio": pipeAgent(t, g, modern)} {
		t.Run(name, func(t *testing.T) {
			for _, step := range homeSteps {
				step.run(t, ha, agent)
			}
		})
	}
	t.Run("stop", func(t *testing.T) { homeStop(t, ha, g) })
	t.Run("events", func(t *testing.T) { homeEvents(t, g) })
	t.Run("refusals", func(t *testing.T) { homeRefusals(t, ha, dialAgent(t, g, modern, "/mcp")) })
	t.Run("secrets", func(t *testing.T) { homeSecrets(t, ha, g) })
}

// homeOutcome is the result of a service.
type homeOutcome struct {
	Confirmed *bool
	Already   bool
	Note      string
	States    map[string]struct {
		State      string
		Attributes map[string]any
	}
}

func (step homeStep) run(t *testing.T, ha *homeassistant.Home, agent *testAgent) {
	t.Helper()
	began := time.Now()
	told, err := agent.use(t.Context(), step.device+"__"+step.tool, step.args)
	if err != nil || told.isError {
		t.Errorf("%s %s: %+v, %v", step.tool, step.args, told, err)
		return
	}
	var got homeOutcome
	if err := json.Unmarshal([]byte(told.text), &got); err != nil || got.Confirmed == nil || len(got.States) != 1 {
		t.Errorf("%s %s: %s", step.tool, step.args, told.text)
		return
	}
	t.Logf("%s %s: %v, %s", step.tool, step.args, time.Since(began).Round(time.Millisecond), told.text)
	if *got.Confirmed != (step.note == "") || got.Already != step.already || !strings.Contains(got.Note, step.note) {
		t.Errorf("%s %s: confirmed %t, already %t, note %q", step.tool, step.args, *got.Confirmed, got.Already, got.Note)
	}
	for key, shown := range got.States {
		state, attributes := ha.State(t, cmp.Or(step.entity, key))
		if state != step.state || shown.State != step.state {
			t.Errorf("%s %s: the state is %s, and %s in Home Assistant", step.tool, step.args, shown.State, state)
		}
		if name, value, ok := strings.Cut(step.attribute, "="); ok && (fmt.Sprint(attributes[name]) != value || fmt.Sprint(shown.Attributes[name]) != value) {
			t.Errorf("%s %s: %s is %v, and %v in Home Assistant", step.tool, step.args, name, shown.Attributes[name], attributes[name])
		}
	}
}

// homeStop: a cover that opens can be stopped by another agent. The cover of the demo stops, and
// does not report it, so the stop is not confirmed.
func homeStop(t *testing.T, ha *homeassistant.Home, g *testGateway) {
	opener, stopper := dialAgent(t, g, modern, "/mcp"), dialAgent(t, g, modern, "/mcp")
	step := homeStep{device: "living-room-window", tool: "close_cover", args: `{}`, entity: "cover.living_room_window", state: "closed"}
	step.run(t, ha, opener)
	opened := make(chan *agentOutcome, 1)
	go func() {
		told, err := opener.use(context.Background(), "living-room-window__open_cover", `{}`)
		if err != nil {
			t.Error(err)
		}
		opened <- told
	}()
	wait.For(t, "the cover opens", func() bool {
		state, _ := ha.State(t, "cover.living_room_window")
		return state == "opening"
	})
	step.tool, step.state, step.note = "stop_cover", "opening", "still missing: rest"
	step.run(t, ha, stopper)
	if told := <-opened; told == nil || told.isError || !strings.Contains(told.text, `"confirmed":false`) || !strings.Contains(told.text, "when another call came") {
		t.Errorf("opening: %+v", told)
	}
	if _, attributes := ha.State(t, "cover.living_room_window"); fmt.Sprint(attributes["current_position"]) == "100" {
		t.Error("the cover was not stopped")
	}
}

// homeEvents: what happens in Home Assistant is an event for agents.
func homeEvents(t *testing.T, g *testGateway) {
	g.online("push")
	agent := dialAgent(t, g, modern, "/mcp")
	told, err := agent.use(t.Context(), "push__press", `{}`)
	if err != nil || !strings.Contains(told.text, `"confirmed":true`) {
		t.Errorf("pressing: %+v, %v", told, err)
	}
	wait.For(t, "the agent reads the event", func() bool {
		for _, n := range agent.state("push").Notifications {
			if strings.Contains(string(n.Params), `"event_type":"pressed"`) && strings.Contains(string(n.Params), `"entity":"event.push`) {
				return true
			}
		}
		return false
	})
}

// homeRefusals are calls that Home Assistant, or the session before it, refuses.
func homeRefusals(t *testing.T, ha *homeassistant.Home, agent *testAgent) {
	for _, c := range []struct {
		tool, args string
		code       ferrule.Code
		text       string
	}{
		{"demo__alarm_arm_away", `{"entity":"alarm_control_panel.security","code":"4242"}`, ferrule.Refused, "refused alarm_arm_away"},
		{"hvac__set_fan_mode", `{"fan_mode":"warp"}`, ferrule.Invalid, "fan_mode must be one that the entity offers"},
		{"demo__lock", `{"entity":"Front Door"}`, ferrule.Invalid, "Use one of: lock.front_door"},
	} {
		told, err := agent.use(t.Context(), c.tool, c.args)
		if err != nil || !told.isError || told.code != c.code || told.mayHaveRun || !strings.Contains(told.text, c.text) || strings.Contains(told.text, "4242") {
			t.Errorf("%s %s: %+v, %v", c.tool, c.args, told, err)
		}
	}
	ha.Ask(t, http.MethodPost, "/api/states/lock.front_door", map[string]any{"state": "unavailable"}, nil)
	// A call before the gateway has noticed would give the lock another state.
	wait.For(t, "the gateway has noticed that the lock is unavailable", func() bool {
		told, err := agent.use(t.Context(), "demo__read_state", `{"entity":"lock.front_door"}`)
		return err == nil && strings.Contains(told.text, "unavailable")
	})
	told, err := agent.use(t.Context(), "demo__unlock", `{"entity":"lock.front_door"}`)
	if err != nil || !told.isError || told.code != ferrule.Offline || told.mayHaveRun {
		t.Errorf("an unavailable lock: %+v, %v", told, err)
	}
}

// homeSecrets checks that no code and no key of a camera is anywhere in the data of the gateway.
func homeSecrets(t *testing.T, ha *homeassistant.Home, g *testGateway) {
	told, err := dialAgent(t, g, modern, "/mcp").use(t.Context(), "demo__read_state", `{"entity":"camera.demo_camera"}`)
	_, attributes := ha.State(t, "camera.demo_camera")
	token, _ := attributes["access_token"].(string)
	if err != nil || told.isError || token == "" || strings.Contains(told.text, token) || strings.Contains(told.text, "entity_picture") {
		t.Errorf("the camera: %+v, %v", told, err)
	}
	g.stop()
	filepath.WalkDir(g.data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, secret := range []string{`"1234"`, `"4242"`, token, ha.Token} {
			if err != nil || bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s has a secret, or %v", path, err)
			}
		}
		return nil
	})
}
