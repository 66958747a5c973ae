package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// homeYAML has an automation and a scene.
const homeYAML = `
automation:
  - id: evening
    alias: Evening
    triggers: []
    actions:
      - {action: light.turn_on, target: {entity_id: light.bed_light}}
scene:
  - {id: movie, name: Movie, entities: {light.bed_light: "off"}}
`

// useHome returns a change of the configuration: use a Home Assistant.
func useHome(home *homeassistant.Home, change func(*config.Home)) func(*config.Config) {
	return func(c *config.Config) {
		h := config.Home{URL: home.URL, Token: ferrule.Secret(home.Token)}
		change(&h)
		c.Devices.HomeAssistant = []config.Home{h}
		c.Calls.PerMinute = 0
	}
}

// lightOf returns the state of the lamp, as Home Assistant knows it.
func lightOf(t *testing.T, home *homeassistant.Home) string {
	state, _ := home.State(t, "light.bed_light")
	return state
}

// homeFound is the result of find_entities.
type homeFound struct {
	Total    int
	Entities []struct{ Entity, Name, Device, State, Reason string }
}

// homeDone is the result of a service.
type homeDone struct {
	Confirmed bool
	States    map[string]struct{ State string }
	Note      string
}

// mustHome calls a tool of the home as an agent, and decodes its result.
func (g *testGateway) mustHome(tool, args string, out any) {
	g.t.Helper()
	g.mustUse("home", tool, args, out)
}

// mustUse calls a tool of a device, which must be online.
func (g *testGateway) mustUse(device, tool, args string, out any) {
	g.t.Helper()
	g.online(device)
	text, err := g.call(device, tool, args, wait.Ample)
	if err != nil {
		g.t.Fatalf("%s %s %s: %v", device, tool, args, err)
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		g.t.Fatal(err)
	}
}

// TestHomeDevice uses the tools of a home itself: with a real Home Assistant, as an agent.
func TestHomeDevice(t *testing.T) {
	home := homeassistant.Start(t, homeassistant.Options{YAML: homeYAML})
	g := startGateway(t, nil, useHome(home, func(h *config.Home) { h.All, h.Adopt = true, "all" }))
	g.online("home")
	if dev := g.device("home"); dev.Trust != ferrule.TrustAdopted || dev.Hub != "home" {
		t.Errorf("got %+v", dev)
	}
	var lights homeFound
	wait.For(t, "the lights are found", func() bool {
		g.mustHome("find_entities", `{"domain":"light","pattern":"bed"}`, &lights)
		return lights.Total == 1
	})
	bed := lights.Entities[0]
	if bed.Entity != "light.bed_light" || bed.Name != "Bed Light" || bed.State != "off" {
		t.Errorf("got %+v", bed)
	}
	g.online(bed.Device)
	g.online("demo")
	g.online("kitchen-sink")
	t.Run("find", func(t *testing.T) { testHomeFind(t, g) })
	t.Run("automations", func(t *testing.T) { testHomeAutomations(t, g, home) })
	t.Run("services", func(t *testing.T) { testHomeServices(t, g, home) })
	t.Run("exposed", func(t *testing.T) { testHomeExposed(t, home) })
}

func testHomeFind(t *testing.T, g *testGateway) {
	for args, want := range map[string]int{
		`{"domain":"lock","state":"locked"}`:                     4,
		`{"device_class":"temperature","domain":"sensor"}`:       1,
		`{"pattern":"light.*bed"}`:                               1,
		`{"domain":"light","changed_within":"1h","sort":"name"}`: 6,
		`{"domain":"light","area":"nowhere"}`:                    0,
		`{"domain":"light","limit":2,"sort":"changed"}`:          6,
	} {
		var found homeFound
		if g.mustHome("find_entities", args, &found); found.Total != want {
			t.Errorf("%s: got %+v", args, found)
		}
	}
	for _, args := range []string{`{"sort":"color"}`, `{"changed_within":"soon"}`, `{"limit":501}`} {
		if _, err := g.call("home", "find_entities", args, wait.Ample); ferrule.AsError(err).Code != ferrule.Invalid {
			t.Errorf("%s: got %v", args, err)
		}
	}
	// A caller that is limited to the home itself does not see its devices.
	result, err := g.Pipeline.Handle(context.Background(), &ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Agent, Name: "guest", Devices: "home"}, Device: "home", Tool: "find_entities", Args: json.RawMessage(`{}`),
	})
	if err != nil || !strings.Contains(string(result.Value), `"total":0`) {
		t.Errorf("got %v, %v", result, err)
	}
}

func testHomeAutomations(t *testing.T, g *testGateway, home *homeassistant.Home) {
	var all homeFound
	if g.mustHome("list_automations", `{}`, &all); all.Total != 1 || all.Entities[0].Entity != "automation.evening" || all.Entities[0].State != "on" {
		t.Errorf("got %+v", all)
	}
	var done homeDone
	if g.mustUse("automation", "turn_off", `{"entity":"automation.evening"}`, &done); !done.Confirmed || done.States["automation.evening"].State != "off" {
		t.Errorf("got %+v", done)
	}
	go g.answers(true)
	if g.mustUse("automation", "trigger", `{"entity":"automation.evening"}`, &done); !done.Confirmed {
		t.Errorf("got %+v", done)
	}
	wait.For(t, "the automation turned the light on", func() bool { return lightOf(t, home) == "on" })
	if g.mustHome("list_scenes", `{"pattern":"mov"}`, &all); all.Total != 1 {
		t.Errorf("got %+v", all)
	}
	if g.mustUse("homeassistant", "turn_on", `{"entity":"scene.movie"}`, &done); !done.Confirmed {
		t.Errorf("got %+v", done)
	}
	wait.For(t, "the scene turned the light off", func() bool { return lightOf(t, home) == "off" })
}

func testHomeServices(t *testing.T, g *testGateway, home *homeassistant.Home) {
	var done homeDone
	if g.mustHome("notify", `{"message":"The washing is done","title":"Laundry"}`, &done); done.Confirmed || done.Note == "" {
		t.Errorf("got %+v", done)
	}
	if _, err := g.call("home", "notify", `{"message":"hello","target":"notify.notifier"}`, wait.Ample); err == nil || !strings.Contains(ferrule.AsError(err).Hint, "persistent_notification") {
		t.Errorf("got %v", err)
	}
	var services struct {
		Services []struct {
			Domain, Service string
			Targets         bool
			Fields          []struct{ Name string }
		}
	}
	if g.mustHome("find_services", `{"pattern":"alarm_disarm"}`, &services); len(services.Services) != 1 || !services.Services[0].Targets || len(services.Services[0].Fields) == 0 {
		t.Errorf("got %+v", services)
	}
	go g.answers(true)
	if g.mustHome("call_service", `{"domain":"light","service":"turn_on","entities":["light.bed_light"],"data":{"brightness_pct":50}}`, &done); !done.Confirmed || lightOf(t, home) != "on" {
		t.Errorf("got %+v", done)
	}
	go g.answers(false)
	if _, err := g.call("home", "call_service", `{"domain":"light","service":"turn_off","entities":["light.bed_light"]}`, wait.Ample); ferrule.AsError(err).Code != ferrule.Denied || lightOf(t, home) != "on" {
		t.Errorf("got %v", err)
	}
	// Neither a right nor a wrong code is recorded, wherever it is.
	const code = "987654321"
	for _, test := range []struct {
		args string
		code ferrule.Code
	}{
		{`{"domain":"alarm_control_panel","service":"alarm_disarm","entities":["alarm_control_panel.security"],"code":"` + code + `"}`, ferrule.Refused},
		{`{"domain":"homeassistant","service":"restart"}`, ferrule.Refused},
		{`{"domain":"light","service":"explode"}`, ferrule.Refused},
		{`{"domain":"light","service":"turn_on","entities":["light.nowhere"]}`, ferrule.Invalid},
		{`{"domain":"alarm_control_panel","service":"alarm_disarm","entities":["alarm_control_panel.security"],"data":{"code":"` + code + `"}}`, ferrule.Invalid},
	} {
		misplaced := strings.Contains(test.args, `"data"`) // refused before anybody is asked
		if !misplaced {
			go g.answers(true)
		}
		if _, err := g.call("home", "call_service", test.args, wait.Ample); ferrule.AsError(err).Code != test.code || !misplaced && strings.Contains(err.Error(), code) {
			t.Errorf("%s: got %v", test.args, err)
		}
	}
	if file := fileWith(t, g.data, code); file != "" {
		t.Errorf("%s has the code", file)
	}
}

// fileWith returns a file below a directory that contains a text; "" if none does.
func fileWith(t *testing.T, dir, text string) (found string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), text) {
			found = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// testHomeExposed checks that agents use only what the owner exposes to Assist, and are told
// the reason for the rest, without its state.
func testHomeExposed(t *testing.T, home *homeassistant.Home) {
	g := startGateway(t, nil, useHome(home, func(h *config.Home) { h.Adopt = "all" }))
	g.online("home")
	var all homeFound
	g.mustHome("find_entities", `{"domain":"automation","hidden":true}`, &all)
	if all.Total != 1 || all.Entities[0].Reason != "not exposed to Assist in Home Assistant" || all.Entities[0].State != "" {
		t.Errorf("got %+v", all)
	}
}
