package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// demoUnused are the entities of the demo that are not devices.
var demoUnused = []string{"conversation.", "stt.", "zone."}

// TestHomeDemo: each entity of the demo integration can be read by an agent, as part of one
// device, with the state that Home Assistant has. Every tool has an effect, and those that only
// read answer.
func TestHomeDemo(t *testing.T) {
	ha := homeassistant.Start(t, homeassistant.Options{})
	g := startGateway(t, nil, withHomeAssistant(ha, func(h *config.Home) { h.All, h.Settings = true, true }))
	var states []struct {
		ID    string `json:"entity_id"`
		State string
	}
	ha.Ask(t, "GET", "/api/states", nil, &states)
	entities := 0
	for _, s := range states {
		if !slices.ContainsFunc(demoUnused, func(prefix string) bool { return strings.HasPrefix(s.ID, prefix) }) {
			entities++
		}
	}
	var devices []ferrule.Device
	read := make(map[string]map[string]string) // states by device and key
	wait.For(t, "all entities are read", func() bool {
		devices = g.ofHome()
		clear(read)
		n := 0
		for _, d := range devices {
			read[d.ID] = g.states(d.ID)
			n += len(read[d.ID])
		}
		return n == entities
	})
	t.Logf("%d entities of %d devices", entities, len(devices))
	for _, s := range states { // those without a device have their own names
		domain, _, _ := strings.Cut(s.ID, ".")
		if got, ok := read["demo"][s.ID]; ok && got != s.State && domain != "camera" && domain != "image" {
			t.Errorf("%s is %q, want %q", s.ID, got, s.State)
		}
	}
	tools := 0
	for _, d := range devices {
		_, m, _ := g.Fleet.Lookup(d.ID)
		tools += len(m.Tools)
		checkDemoTools(t, g, d.ID, m)
	}
	t.Logf("%d tools", tools)
	if len(devices) < 55 || tools < 230 {
		t.Errorf("%d devices with %d tools", len(devices), tools)
	}
	agent := dialAgent(t, g, modern, "/mcp")
	for tool, args := range map[string]string{
		"demo__get_forecasts": `{"entity":"weather.demo_weather_north","type":"daily"}`,
		"demo__get_events":    `{"entity":"calendar.calendar_1","duration":{"hours":24}}`,
	} {
		if told, err := agent.use(t.Context(), tool, args); err != nil || told.isError {
			t.Errorf("%s: %s, %v", tool, told.text, err)
		}
	}
	seesPictures(t, agent)
}

// seesPictures calls the tool that returns pictures, of a camera and of an image entity.
func seesPictures(t *testing.T, agent *testAgent) {
	t.Helper()
	for device, entity := range map[string]string{"demo": "camera.demo_camera", "kitchen-sink": "image.qr_code"} {
		told, err := agent.use(t.Context(), device+"__get_picture", `{"entity":"`+entity+`"}`)
		if err != nil || told.isError {
			t.Errorf("%s: %+v, %v", entity, told, err)
			continue
		}
		i := slices.IndexFunc(told.result.Content, func(c mcp.Content) bool { _, ok := c.(*mcp.ImageContent); return ok })
		if i < 0 {
			t.Errorf("%s: no picture in %+v", entity, told)
			continue
		}
		picture := told.result.Content[i].(*mcp.ImageContent)
		t.Logf("%s: %d bytes of %s", entity, len(picture.Data), picture.MIMEType)
		if len(picture.Data) < 1000 || http.DetectContentType(picture.Data) != picture.MIMEType {
			t.Errorf("%s: %d bytes of %s", entity, len(picture.Data), picture.MIMEType)
		}
	}
}

// ofHome returns the devices of Home Assistants that are online, but for the homes themselves.
func (g *testGateway) ofHome() (all []ferrule.Device) {
	for _, d := range g.Fleet.Devices() {
		if _, m, ok := g.Fleet.Lookup(d.ID); ok && d.Protocol == "homeassistant" && d.State == ferrule.StateOnline && m.Tool("read_state") != nil {
			all = append(all, *d)
		}
	}
	return all
}

// states returns the states of a device of a Home Assistant by key.
func (g *testGateway) states(id string) map[string]string {
	g.t.Helper()
	text, err := g.call(id, "read_state", `{}`, 0)
	var got struct {
		States map[string]struct{ State string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &got)
	}
	if err != nil {
		g.t.Logf("reading %s: %v", id, err)
		return nil
	}
	all := make(map[string]string)
	for key, state := range got.States {
		all[key] = state.State
	}
	return all
}

// checkDemoTools checks that a device's tools can be used, and what they do to the world.
func checkDemoTools(t *testing.T, g *testGateway, id string, m *ferrule.Manifest) {
	t.Helper()
	for _, tool := range m.Tools {
		if tool.Quarantine != "" || tool.Check == nil || tool.Effect == "" {
			t.Errorf("%s: %s has the effect %q, and is in quarantine: %q", id, tool.Name, tool.Effect, tool.Quarantine)
		}
		opens := slices.Contains([]string{"lock.unlock", "lock.open", "alarm_control_panel.alarm_disarm", "cover.garage.open_cover", "valve.open_valve", "siren.turn_on"}, tool.Class)
		if opens && (tool.Effect != ferrule.Endangers || tool.Idempotent) {
			t.Errorf("%s: %s is %s", id, tool.Name, tool.Effect)
		}
		if strings.HasSuffix(tool.Class, ".toggle") && tool.Idempotent {
			t.Errorf("%s: %s is idempotent", id, tool.Name)
		}
	}
}
