package homeassistant

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// helpers are entities that the demo integration does not have.
const helpers = `
input_boolean: {night: {name: Night}}
input_button: {doorbell: }
input_datetime: {alarm: {has_date: true, has_time: true}}
input_number: {level: {min: 0, max: 10}}
input_select: {mode: {options: [a, b]}}
input_text: {note: {}, pin: {mode: password}}
counter: {visits: }
timer: {egg: }
schedule: {heating: }
script: {hello: {sequence: []}}
automation: [{id: a, alias: Nothing, triggers: [], actions: []}]
scene: [{name: Movie, entities: {light.bed_light: "on"}}]
template: [{sensor: [{name: Plain, state: "text"}]}]
`

// TestHomeEntities checks that each entity of a real Home Assistant has tools or signals in
// exactly one device, or a reason, and that its states fit the plan.
func TestHomeEntities(t *testing.T) {
	ha := homeassistant.Start(t, homeassistant.Options{YAML: helpers})
	w := watch(t, ha.URL, ha.Token, HubConfig{All: true, Settings: true})
	wait.For(t, "everything was read", func() bool { return w.Status().Complete && w.has("demo") })

	var states []struct {
		ID string `json:"entity_id"`
	}
	ha.Ask(t, "GET", "/api/states", nil, &states)
	reasons := make(map[string]string)
	for _, e := range w.Entities(func(string) bool { return true }) {
		reasons[e.ID] = e.Reason
	}
	tools, signals := make(map[string][]string), make(map[string]int)
	w.mu.Lock()
	sightings := slices.Collect(maps.Values(w.all))
	w.mu.Unlock()
	for _, s := range sightings {
		link, err := s.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var offer home.Offer
		var now map[string]home.State
		recv(t, link, channelOffer, &offer)
		recv(t, link, channelStates, &now)
		checkDevice(t, s.Title, &offer, now, tools, signals)
		link.Close()
	}
	unused := 0
	for _, s := range states {
		switch used := len(tools[s.ID]) > 0; {
		case used == (reasons[s.ID] != ""):
			t.Errorf("%s: tools %v, reason %q", s.ID, tools[s.ID], reasons[s.ID])
		case !used:
			unused++
			t.Logf("%s is not used: %s", s.ID, reasons[s.ID])
		}
	}
	measured := 0
	for _, n := range signals {
		measured += n
	}
	t.Logf("%d entities: %d are used, %d have signals (%d signals), %d have a reason", len(states), len(tools), len(signals), measured, unused)
	if len(states) < 140 || unused > 10 {
		t.Errorf("%d of %d entities are not used", unused, len(states))
	}
}

// checkDevice notes the tools and signals of the entities of a device, and checks that its tools
// can be used.
func checkDevice(t *testing.T, title string, offer *home.Offer, now map[string]home.State, tools map[string][]string, signals map[string]int) {
	t.Helper()
	m, plan := describe.Device(offer)
	m.Bound()
	for _, tool := range m.Tools {
		if _, err := schema.Compile(tool.Input); err != nil || tool.Quarantine != "" {
			t.Errorf("%s: %s: %v %s", title, tool.Name, err, tool.Quarantine)
		}
		for _, id := range plan.Tools[tool.Name].Entities {
			tools[id] = append(tools[id], tool.Name)
		}
		for argument, attribute := range plan.Tools[tool.Name].Choices {
			if id := slices.Sorted(maps.Values(plan.Tools[tool.Name].Entities))[0]; !offer.Device.Group && now[id].Attributes[attribute] == nil {
				t.Errorf("%s: %s: %s has no attribute %s", title, tool.Name, argument, attribute)
			}
		}
	}
	if text, err := m.Canonical(); err != nil || !offer.Device.Group && slices.ContainsFunc(offer.Device.Entities, func(e home.Entity) bool { return strings.Contains(string(text), e.ID) }) {
		t.Errorf("%s: an entity ID is in the manifest, or %v", title, err)
	}
	for id, all := range plan.Signals {
		signals[id] = len(all)
		for _, s := range all {
			if state := now[id]; s.Attribute == "" && s.Words == nil && state.Value != "unknown" && !state.Unavailable() {
				if _, ok := number(s, state); !ok {
					t.Errorf("%s: the state %q is not a number", id, state.Value)
				}
			}
		}
	}
}
