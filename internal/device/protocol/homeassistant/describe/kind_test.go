package describe_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// kind returns the Kind of a device as the dock computes it.
func kind(t testing.TB, offer *home.Offer) ferrule.Kind {
	t.Helper()
	m, _ := describe.Device(offer)
	m.Bound()
	k, err := m.Kind()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// copied returns an offer that can be changed.
func copied(t testing.TB, offer *home.Offer) *home.Offer {
	t.Helper()
	data, err := json.Marshal(offer)
	out := new(home.Offer)
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestKindStays checks that what owners change every day does not change the Kind.
func TestKindStays(t *testing.T) {
	all := demo(t)
	for what, change := range map[string]func(o *home.Offer){
		"another name, area and ID": func(o *home.Offer) {
			o.Device.ID, o.Device.Name, o.Device.Area, o.Device.Floor, o.Device.Labels = "other", "Other", "Kitchen", "Ground", []string{"x"}
			o.Device.Keys = []string{"mac:00:11:22:33:44:55"}
			for i := range o.Device.Entities {
				e := &o.Device.Entities[i]
				e.ID, e.Name = e.Domain+".other_"+fmt.Sprint(i), "Other"
			}
		},
		"another list of effects, modes or options": func(o *home.Offer) {
			for i := range o.Device.Entities {
				for _, list := range []string{"effect_list", "fan_modes", "preset_modes", "options", "source_list"} {
					set(&o.Device.Entities[i], list, `["a","b","c"]`)
				}
			}
		},
		"texts of another release": func(o *home.Offer) {
			for i := range o.Services {
				s := &o.Services[i]
				s.Title, s.Text = "Einschalten", "Schaltet ein."
				for j := range s.Fields {
					s.Fields[j].Title, s.Fields[j].Text = "Farbe", "Die Farbe."
				}
			}
		},
		"another order": func(o *home.Offer) {
			reverse(o.Device.Entities)
			reverse(o.Services)
			for i := range o.Services {
				reverse(o.Services[i].Fields)
			}
		},
		"assumed state": func(o *home.Offer) {
			for i := range o.Device.Entities {
				o.Device.Entities[i].Assumed = true
			}
		},
		"services of other domains": func(o *home.Offer) {
			o.Services = append(o.Services, home.Service{Domain: "other", Name: "turn_on", Targets: []home.Target{{Domains: []string{"other"}}}},
				home.Service{Domain: "homeassistant", Name: "turn_on", Targets: []home.Target{{}}})
		},
	} {
		for name, offer := range all {
			if offer.Device.Group && strings.HasPrefix(what, "another name") {
				continue // the ID of a group is the name of its integration
			}
			changed := copied(t, offer)
			change(changed)
			if kind(t, changed) != kind(t, offer) {
				t.Errorf("%s: %s: another Kind", what, name)
			}
		}
	}
}

func set(e *home.Entity, ability, value string) {
	if e.Abilities == nil {
		e.Abilities = make(map[string]json.RawMessage)
	}
	e.Abilities[ability] = json.RawMessage(value)
}

func reverse[T any](s []T) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}

// TestKindOfGroup checks that a group keeps its Kind when the owner adds a helper like others,
// and has another one when something appears that it could not do.
func TestKindOfGroup(t *testing.T) {
	group := demo(t)["demo"]
	before := kind(t, group)
	for id, features := range map[string]int{"lock.back_door": 0, "fan.attic": 55, "media_player.attic": 119695, "siren.attic": 3} {
		changed := copied(t, group)
		changed.Device.Entities = append(changed.Device.Entities, home.Entity{
			ID: id, Key: id, Domain: strings.Split(id, ".")[0], Platform: "demo", Name: "New", Class: "new", Features: features,
			Abilities: map[string]json.RawMessage{"preset_modes": json.RawMessage(`["x"]`), "min": json.RawMessage(`5`), "max": json.RawMessage(`6`)},
		})
		if kind(t, changed) != before {
			t.Errorf("%s: another Kind", id)
		}
	}
	changed := copied(t, group)
	changed.Device.Entities = append(changed.Device.Entities, home.Entity{ID: "fan.a", Domain: "fan", Features: 1 << 20}, home.Entity{ID: "valve.a", Domain: "valve", Features: 4})
	if kind(t, changed) == before {
		t.Error("a valve with a position has the same Kind")
	}
}

// TestKindChanges checks that another ability is another Kind.
func TestKindChanges(t *testing.T) {
	all := demo(t)
	for _, c := range []struct {
		device, what string
		change       func(e *home.Entity)
	}{
		{"Bed Light", "a transition", func(e *home.Entity) { e.Features |= 32 }},
		{"Bed Light", "no colors", func(e *home.Entity) { set(e, "supported_color_modes", `["onoff"]`) }},
		{"HeatPump", "another range", func(e *home.Entity) { set(e, "max_temp", `30`) }},
		{"HeatPump", "another mode", func(e *home.Entity) { set(e, "hvac_modes", `["heat","off","cool"]`) }},
		{"Hall Window", "a garage door", func(e *home.Entity) { e.Class = "garage" }},
		{"PWM 1", "another range", func(e *home.Entity) { set(e, "max", `2`) }},
		{"Text", "a password", func(e *home.Entity) { set(e, "mode", `"password"`) }},
	} {
		changed := copied(t, all[c.device])
		c.change(&changed.Device.Entities[0])
		if kind(t, changed) == kind(t, all[c.device]) {
			t.Errorf("%s: %s: the same Kind", c.device, c.what)
		}
	}
	if kind(t, all["Bed Light"]) == kind(t, all["Ceiling Lights"]) {
		t.Error("a light with effects has the Kind of one without")
	}
	for _, pair := range [][2]string{{"Ceiling Lights", "Kitchen Lights"}, {"Outlet 1", "Outlet 2"}, {"Total gas 1", "Total gas 2"}} {
		if kind(t, all[pair[0]]) != kind(t, all[pair[1]]) {
			t.Errorf("%v: two devices that are equal have different Kinds", pair)
		}
	}
}

// TestSeveralEntities checks the tools of a device with entities of one domain and of several.
func TestSeveralEntities(t *testing.T) {
	all := demo(t)
	offer := copied(t, all["Outlet 1"])
	offer.Services = append(offer.Services, all["Bed Light"].Services...)
	offer.Services = append(offer.Services, all["PWM 1"].Services...)
	entity := func(id, key string, of *home.Offer) home.Entity {
		e := of.Device.Entities[0]
		e.ID, e.Key, e.Domain = id, key, strings.Split(id, ".")[0]
		return e
	}
	offer.Device.Entities = []home.Entity{
		entity("switch.a", "switch", all["AC"]), entity("switch.b", "switch_2", all["AC"]), entity("light.a", "light", all["Bed Light"]),
		entity("number.a", "range", all["Small Range"]), entity("number.b", "range_2", all["Temperature setting"]),
	}
	m, plan := describe.Device(offer)
	if m.Tool("turn_on") != nil || m.Tool("switch_turn_on") == nil || m.Tool("light_turn_on") == nil {
		t.Errorf("names that collide have no domain: %v", m.Tools)
	}
	if tool := plan.Tools["switch_turn_on"]; tool.Entities["switch"] != "switch.a" || tool.Entities["switch_2"] != "switch.b" || len(tool.Entities) != 2 {
		t.Errorf("got %v", tool.Entities)
	}
	input := string(m.Tool("switch_turn_on").Input)
	if !strings.Contains(input, `"enum":["switch","switch_2"]`) || !strings.Contains(input, `"required":["entity"]`) {
		t.Errorf("got %s", input)
	}
	if strings.Contains(string(m.Tool("light_turn_on").Input), `"entity"`) {
		t.Error("one light has to be named")
	}
	if input := string(m.Tool("set_value").Input); !strings.Contains(input, `"maximum":255,"minimum":1`) || !strings.Contains(input, "range: 1 to 255. range_2: 15 to 35 °C.") {
		t.Errorf("got %s", input)
	}
	for key, want := range map[string]string{"switch_turn_on": "switch.outlet.turn_on", "light_turn_on": "light.turn_on"} {
		if got := m.Tool(key).Class; got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

// TestClass checks that one dangerous entity makes a tool dangerous, and that a service of an
// integration is not taken for one of Home Assistant.
func TestClass(t *testing.T) {
	services := []home.Service{
		{Domain: "cover", Name: "open_cover", Targets: []home.Target{{Domains: []string{"cover"}}}},
		{Domain: "zha", Name: "set_lock_user_code", Targets: []home.Target{{Domains: []string{"lock"}, Platforms: []string{"zha"}}}},
	}
	for want, classes := range map[string][]string{
		"cover.open_cover": {"", ""}, "cover.blind.open_cover": {"blind", "blind"},
		"cover.garage.open_cover": {"blind", "garage"}, "cover.door.open_cover": {"door", "blind", "garage"},
	} {
		offer := &home.Offer{Services: services}
		for i, class := range classes {
			offer.Device.Entities = append(offer.Device.Entities, home.Entity{ID: fmt.Sprint("cover.", i), Key: fmt.Sprint("cover_", i), Domain: "cover", Class: class})
		}
		if m, _ := describe.Device(offer); m.Tool("open_cover").Class != want {
			t.Errorf("%v: got %s, want %s", classes, m.Tool("open_cover").Class, want)
		}
		offer.Device.Group = true
		if m, _ := describe.Device(offer); m.Tool("open_cover").Class != "cover.any.open_cover" {
			t.Errorf("a group: got %s", m.Tool("open_cover").Class)
		}
	}
	m, _ := describe.Device(&home.Offer{Services: services, Device: home.Device{Entities: []home.Entity{{ID: "lock.a", Key: "lock", Domain: "lock", Platform: "zha"}}}})
	if tool := m.Tool("set_lock_user_code"); tool == nil || tool.Class != "integration.zha.set_lock_user_code" {
		t.Errorf("got %+v", tool)
	}
}

// FuzzDevice checks that nothing that a home says breaks its description.
func FuzzDevice(f *testing.F) {
	f.Add([]byte(`{"device":{"id":"a","entities":[{"id":"light.a","key":"light","domain":"light","features":4,"abilities":{"supported_color_modes":["hs"]}}]},
		"services":[{"domain":"light","name":"turn_on","targets":[{"domains":["light"]}],"fields":[
			{"name":"effect","features":[4],"selector":{"text":null}},{"name":"hs_color","example":"[300, 70]","selector":{"object":null},"attributes":{"supported_color_modes":["hs"]}}]}]}`))
	f.Add([]byte(`{"device":{"id":"demo","group":true,"entities":[{"id":"text.a","domain":"text","abilities":{"min":1,"max":5,"pattern":"[a-z]+"}}]},
		"services":[{"domain":"text","name":"set_value","targets":[{}],"fields":[{"name":"value","required":true}]}]}`))
	f.Add([]byte(`{"device":{"entities":[{"id":"number.a","key":"a","domain":"number","unit":"°C","abilities":{"min":1,"max":5}},{"id":"number.b","key":"a","domain":"number","abilities":{"min":2,"max":1e99}}]},
		"services":[{"domain":"number","name":"set_value","targets":[{}],"fields":[{"name":"value"}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var offer home.Offer
		if json.Unmarshal(data, &offer) != nil {
			return
		}
		m, plan := describe.Device(&offer)
		m.Bound()
		if _, err := m.Kind(); err != nil {
			t.Fatal(err)
		}
		for _, e := range offer.Device.Entities {
			for _, s := range plan.Signals[e.ID] {
				if ferrule.CheckSignal(s.Name) != nil {
					t.Fatalf("signal %q", s.Name)
				}
			}
		}
	})
}
