package home

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The files in testdata were recorded from Home Assistant 2025.4.4 with its demo: some of the
// answers, without long texts.
func read(t testing.TB, name string) json.RawMessage {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func answers(t testing.TB) *Answers {
	return &Answers{
		Areas: read(t, "areas"), Floors: json.RawMessage(`[]`), Labels: json.RawMessage(`[]`), Devices: read(t, "devices"),
		Entities: read(t, "entities"), Sources: read(t, "sources"), Exposed: read(t, "exposed"),
	}
}

// built returns the inventory of the recording, after edits.
func built(t testing.TB, choice Choice, edit func(a *Answers, s *States)) *Inventory {
	t.Helper()
	a, s := answers(t), &States{}
	if _, err := s.Apply(read(t, "states")); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(a, s)
	}
	r, err := ReadRegistry(a)
	if err != nil {
		t.Fatal(err)
	}
	return r.Build(slices.Collect(s.IDs()), s.Get, func(string) *Entity { return nil }, choice)
}

// device returns the device that an entity belongs to.
func (i *Inventory) device(t testing.TB, id string) (*Device, Entity) {
	t.Helper()
	place, known := i.Places[id]
	if !known || place.Device < 0 {
		t.Fatalf("%s is not used: %q", id, place.Reason)
	}
	for _, e := range i.Devices[place.Device].Entities {
		if e.ID == id {
			return i.Devices[place.Device], e
		}
	}
	t.Fatalf("%s is not an entity of its device", id)
	return nil, Entity{}
}

func TestBuild(t *testing.T) {
	i := built(t, Choice{}, nil)
	d, e := i.device(t, "light.bed_light")
	if d.Name != "Bed Light" || d.Group || !slices.Equal(d.Keys, []string{"demo:light_1"}) || len(d.Entities) != 1 {
		t.Errorf("device: %+v", d)
	}
	if e.Key != "light" || e.Domain != "light" || e.Platform != "demo" || e.Features != 4 || string(e.Abilities["supported_color_modes"]) != `["color_temp", "hs"]` && e.Abilities["supported_color_modes"] == nil {
		t.Errorf("entity: %+v", e)
	}
	if _, state := e.Abilities["brightness"]; state {
		t.Error("the brightness is not an ability")
	}
	if _, e := i.device(t, "sensor.outside_temperature"); e.Unit != "°C" || !e.Measures || e.Class != "temperature" || e.Key != "temperature" {
		t.Errorf("sensor: %+v", e)
	}
	if _, e := i.device(t, "climate.heatpump"); e.Key != "ubercool" || e.Abilities["hvac_modes"] == nil || e.Abilities["min_temp"] == nil {
		t.Errorf("climate: %+v", e)
	}
	group, e := i.device(t, "media_player.walkman")
	if !group.Group || group.ID != "demo" || e.Key != "media_player.walkman" {
		t.Errorf("group: %+v", group)
	}
	for id, want := range map[string]string{
		"lock.front_door": reasonUnexposed, "input_boolean.night": reasonUnexposed, "update.demo_update_no_install": reasonDiagnostic,
		"sensor.sun_next_dawn": reasonUnexposed,
	} {
		if p := i.Places[id]; p.Reason != want || p.Device >= 0 {
			t.Errorf("%s: %+v, want %q", id, p, want)
		}
	}
	for id, p := range i.Places {
		if (p.Device < 0) != (p.Reason != "") {
			t.Errorf("%s: %+v", id, p)
		}
	}
}

func TestBuildAll(t *testing.T) {
	i := built(t, Choice{All: true, Settings: true}, nil)
	for id, p := range i.Places {
		if p.Device < 0 && p.Reason != Unused(domainOf(id)) {
			t.Errorf("%s is not used: %s", id, p.Reason)
		}
	}
	strip, _ := i.device(t, "switch.outlet_1")
	if keys := keysOf(strip); !slices.Equal(keys, []string{"power", "switch"}) {
		t.Errorf("keys: %v", keys)
	}
}

func keysOf(d *Device) (keys []string) {
	for _, e := range d.Entities {
		keys = append(keys, e.Key)
	}
	return keys
}

// replace returns an edit that changes texts of the entity registry.
func replace(pairs ...string) func(*Answers, *States) {
	return func(a *Answers, _ *States) {
		a.Entities = json.RawMessage(strings.NewReplacer(pairs...).Replace(string(a.Entities)))
	}
}

// edited returns an edit of one entry of the entity registry.
func edited(t testing.TB, id string, fields map[string]any) func(*Answers, *States) {
	return func(a *Answers, _ *States) {
		var all []map[string]any
		if err := json.Unmarshal(a.Entities, &all); err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if one["entity_id"] == id {
				maps.Copy(one, fields)
			}
		}
		a.Entities, _ = json.Marshal(all)
	}
}

func TestReasons(t *testing.T) {
	for name, c := range map[string]struct {
		choice Choice
		fields map[string]any
		want   string
	}{
		"disabled":       {Choice{All: true}, map[string]any{"disabled_by": "user"}, reasonDisabled},
		"hidden":         {Choice{}, map[string]any{"hidden_by": "user"}, reasonHidden},
		"setting":        {Choice{All: true}, map[string]any{"entity_category": "config"}, reasonSetting},
		"diagnostic":     {Choice{All: true}, map[string]any{"entity_category": "diagnostic"}, reasonDiagnostic},
		"not exposed":    {Choice{}, map[string]any{"options": map[string]any{"conversation": map[string]any{"should_expose": false}}}, reasonUnexposed},
		"undecided":      {Choice{}, map[string]any{"options": map[string]any{}}, ""},
		"setting is all": {Choice{Settings: true}, map[string]any{"entity_category": "config"}, reasonUnexposed},
	} {
		t.Run(name, func(t *testing.T) {
			i := built(t, c.choice, edited(t, "light.bed_light", c.fields))
			if got := i.Places["light.bed_light"].Reason; got != c.want {
				t.Errorf("reason %q, want %q", got, c.want)
			}
		})
	}
	t.Run("ours", func(t *testing.T) {
		i := built(t, Choice{All: true}, func(a *Answers, _ *States) {
			a.Devices = json.RawMessage(strings.ReplaceAll(string(a.Devices), `"demo",
    "light_1"`, `"mqtt",
    "ferrule_0011"`))
		})
		if got := i.Places["light.bed_light"].Reason; got != reasonOurs {
			t.Errorf("reason %q", got)
		}
	})
	t.Run("not an administrator", func(t *testing.T) {
		unknown := func(a *Answers, _ *States) { a.Exposed = nil }
		i := built(t, Choice{}, unknown)
		for id, want := range map[string]string{"lock.front_door": reasonUnknown, "media_player.walkman": reasonUnknown, "light.bed_light": ""} {
			if got := i.Places[id].Reason; got != want {
				t.Errorf("%s: %q", id, got)
			}
		}
		if got := built(t, Choice{All: true}, unknown).Places["media_player.walkman"].Reason; got != "" {
			t.Errorf("all: %q", got)
		}
	})
}

// The keys of a device do not depend on what its owner changes.
func TestKeysStay(t *testing.T) {
	before, _ := built(t, Choice{}, nil).device(t, "climate.heatpump")
	for name, edit := range map[string]func(*Answers, *States){
		"name":      replace(`"HeatPump"`, `"Cellar"`, `"original_name": null`, `"original_name": "Other"`),
		"unique ID": replace(`"climate_1"`, `"another"`),
		"area":      edited(t, "climate.heatpump", map[string]any{"area_id": "kitchen"}),
	} {
		after, _ := built(t, Choice{}, edit).device(t, "climate.heatpump")
		if !slices.Equal(keysOf(before), keysOf(after)) {
			t.Errorf("%s: %v became %v", name, keysOf(before), keysOf(after))
		}
	}
}

func TestNumberedKeys(t *testing.T) {
	d := draft{device: &Device{}}
	for _, unique := range []string{"outlet_10", "outlet_2", "outlet_1"} {
		d.put(candidate{entity: Entity{ID: "switch." + unique, Domain: "switch"}, unique: unique, stem: "switch"})
	}
	d.put(candidate{entity: Entity{ID: "sensor.a", Domain: "sensor"}, unique: "a", stem: "battery"})
	d.put(candidate{entity: Entity{ID: "binary_sensor.a", Domain: "binary_sensor"}, unique: "b", stem: "battery"})
	got := make(map[string]string)
	for _, e := range d.named() {
		got[e.Key] = e.ID
	}
	want := map[string]string{
		"switch": "switch.outlet_1", "switch_2": "switch.outlet_2", "switch_3": "switch.outlet_10",
		"battery_sensor": "sensor.a", "battery_binary_sensor": "binary_sensor.a",
	}
	if !maps.Equal(got, want) {
		t.Errorf("keys: %v", got)
	}
}

// A restored entity keeps the description that it had.
func TestRestored(t *testing.T) {
	a, s := answers(t), &States{}
	s.Apply(read(t, "states"))
	r, err := ReadRegistry(a)
	if err != nil {
		t.Fatal(err)
	}
	_, known := built(t, Choice{}, nil).device(t, "light.bed_light")
	if _, err := s.Apply(json.RawMessage(`{"a":{"light.bed_light":{"s":"unavailable","a":{"restored":true,"supported_features":0},"c":"x","lc":1}}}`)); err != nil {
		t.Fatal(err)
	}
	i := r.Build(slices.Collect(s.IDs()), s.Get, func(id string) *Entity {
		if id == known.ID {
			return &known
		}
		return nil
	}, Choice{})
	if _, e := i.device(t, "light.bed_light"); e.Features != known.Features || e.Key != known.Key || len(e.Abilities) != len(known.Abilities) {
		t.Errorf("%+v, want %+v", e, known)
	}
}

func TestServices(t *testing.T) {
	all, err := ReadServices(read(t, "services"), nil)
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string) *Service {
		i := slices.IndexFunc(all, func(s Service) bool { return s.Domain+"."+s.Name == name })
		if i < 0 {
			t.Fatalf("no service %s", name)
		}
		return &all[i]
	}
	on := find("light.turn_on")
	field := func(name string) *Field {
		i := slices.IndexFunc(on.Fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("no field %s", name)
		}
		return &on.Fields[i]
	}
	if on.Title != "Turn on" || !slices.Equal(field("transition").Features, []int{32}) || len(field("rgb_color").Attributes["supported_color_modes"]) != 5 {
		t.Errorf("service: %+v", on)
	}
	if field("rgbw_color") == nil || slices.ContainsFunc(on.Fields, func(f Field) bool { return f.Name == "advanced_fields" }) {
		t.Error("the section was not flattened")
	}
	light := &Entity{ID: "light.a", Domain: "light"}
	if !on.Fits(light) || find("lock.unlock").Fits(light) || find("notify.persistent_notification").Fits(light) {
		t.Error("the wrong services fit")
	}
	if climate := find("climate.set_temperature"); !climate.Fits(&Entity{Domain: "climate", Features: 3}) || climate.Fits(&Entity{Domain: "climate", Features: 4}) {
		t.Errorf("targets: %+v", climate.Targets)
	}
	if find("weather.get_forecasts").Response != "always" || on.Response != "" {
		t.Error("wrong responses")
	}
	if LacksTexts(all) {
		t.Error("the services have texts")
	}
}

func TestTranslatedServices(t *testing.T) {
	data := json.RawMessage(`{"light":{"turn_on":{"target":{"entity":[{"domain":["light"]}]},"fields":{"flash":{"selector":{"text":null}}}}}}`)
	all, err := ReadServices(data, nil)
	if err != nil || !LacksTexts(all) {
		t.Fatalf("%v %v", all, err)
	}
	all, err = ReadServices(data, json.RawMessage(`{"resources":{"component.light.services.turn_on.name":"On","component.light.services.turn_on.fields.flash.name":"Flash"}}`))
	if err != nil || all[0].Title != "On" || all[0].Fields[0].Title != "Flash" {
		t.Errorf("%+v %v", all, err)
	}
}

func FuzzRegistry(f *testing.F) {
	a := answers(f)
	f.Add([]byte(a.Devices), []byte(a.Entities), []byte(a.Sources), []byte(a.Exposed))
	f.Add([]byte(`[{"id":"a","identifiers":[["x"],["a",1],null]}]`), []byte(`[{"entity_id":"light.a","device_id":"a","unique_id":7}]`), []byte(`{"light.a":{}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, devices, entities, sources, exposed []byte) {
		r, err := ReadRegistry(&Answers{Devices: devices, Entities: entities, Sources: sources, Exposed: exposed})
		if err != nil {
			return
		}
		i := r.Build([]string{"light.a", "sensor.b"}, func(string) *State { return &State{Value: "on"} }, func(string) *Entity { return nil }, Choice{})
		for _, d := range i.Devices {
			keys := keysOf(d)
			slices.Sort(keys)
			if len(slices.Compact(keys)) != len(d.Entities) || len(d.Entities) == 0 {
				t.Errorf("keys: %v", keysOf(d))
			}
		}
	})
}

func FuzzServices(f *testing.F) {
	f.Add([]byte(read(f, "services")), []byte(`{"resources":{"component.light.services.turn_on.name":"On"}}`))
	f.Add([]byte(`{"a":{"b":{"target":{"entity":{"domain":"light","supported_features":[[1,2],4]}},"response":{"optional":true},"fields":{"c":{"fields":{"d":{"fields":{}}}}}}}}`), []byte(nil))
	f.Fuzz(func(t *testing.T, data, texts []byte) {
		all, err := ReadServices(data, texts)
		if err != nil {
			return
		}
		if _, err := json.Marshal(all); err != nil {
			t.Error(err)
		}
	})
}
