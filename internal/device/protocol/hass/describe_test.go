package hass

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func kindOf(t *testing.T, o offer) ferrule.Kind {
	t.Helper()
	m := describe(&o).manifest
	m.Bound()
	kind, err := m.Kind()
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

// TestKind: what identifies one device is not part of its kind, and neither is the form of
// its discovery messages.
func TestKind(t *testing.T) {
	first := kindOf(t, plug)
	replace := func(pairs ...string) offer {
		o := plug
		o.Configs = slices.Clone(plug.Configs)
		for i := range o.Configs {
			c := &o.Configs[i]
			c.Node, c.Payload = strings.NewReplacer(pairs...).Replace(c.Node), strings.NewReplacer(pairs...).Replace(c.Payload)
		}
		return o
	}
	if second := kindOf(t, replace("plug1", "plug2", "acme/1", "attic/2", "Kettle", "Toaster")); second != first {
		t.Error("two plugs of one model have different kinds")
	}
	if other := kindOf(t, replace("2.1.0", "2.2.0")); other == first {
		t.Error("another firmware has the same kind")
	}
	if other := kindOf(t, replace("unit_of_meas", "x")); other == first {
		t.Error("another unit has the same kind")
	}
	whole := offer{Configs: []config{{"device", "", "plug-7f3a", `{"dev":{"ids":"plug3","name":"Lamp","mf":"Acme","mdl":"Meter plug","mdl_id":"AP-1","sw":"2.1.0"},"o":{"name":"acme-fw"},"cmps":{
		"relay":{"p":"switch","uniq_id":"a","cmd_t":"acme/3/set","stat_t":"acme/3/relay"},
		"power":{"p":"sensor","uniq_id":"b","stat_t":"acme/3/power","unit_of_meas":"W","stat_cla":"measurement","exp_aft":120},
		"timer":{"p":"number","uniq_id":"c","cmd_t":"acme/3/timer"}}}`}}}
	if kind := kindOf(t, whole); kind != first {
		t.Errorf("the two forms have different kinds:\n%s\n%s", manifestOf(whole), manifestOf(plug))
	}
}

func manifestOf(o offer) []byte {
	data, _ := json.Marshal(describe(&o).manifest)
	return data
}

func TestManifest(t *testing.T) {
	d := describe(&plug)
	m := d.manifest
	if m.Model != "AP-1" || m.Version != "2.1.0" || m.Instructions != "Acme Meter plug via acme-fw" {
		t.Errorf("got %+v", m)
	}
	for _, name := range []string{"relay", "timer", "state"} {
		if m.Tool(name) == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if s := m.Tool("state"); s.Effect != ferrule.Reads || !strings.Contains(s.Text, "power (W), relay") {
		t.Errorf("got %+v", s)
	}
	if text := string(manifestOf(plug)); strings.Contains(text, "Kettle") || strings.Contains(text, "acme/1") || strings.Contains(text, "plug1") {
		t.Errorf("the manifest identifies one device: %s", text)
	}
	if got := d.topics(); !slices.Equal(got, []string{"acme/1/power", "acme/1/relay"}) {
		t.Errorf("topics %q", got)
	}
}

func TestUnique(t *testing.T) {
	names := []string{"lock", "power", "lock", "state", "same", "same", "switch_lock"}
	components := []string{"lock", "sensor", "switch", "switch", "number", "number", "text"}
	want := []string{"lock_lock", "power", "switch_lock_2", "switch_state", "number_same", "number_same_2", "switch_lock"}
	if got := unique(names, components, 64, "state"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	long := strings.Repeat("x", 70)
	got := unique([]string{long + "a", long + "b"}, []string{"light", "light"}, 64)
	if got[0] == got[1] || len(got[0]) > 64 || len(got[1]) > 64 {
		t.Errorf("got %q", got)
	}
}

// TestNames: the names do not depend on the order of the configs, and a command confirms
// itself by the state of its own entity.
func TestNames(t *testing.T) {
	a := config{"switch", "x", "fan", `{"cmd_t":"a/set","stat_t":"a","dev":{"ids":"x"}}`}
	b := config{"binary_sensor", "x", "fan", `{"stat_t":"b","dev":{"ids":"x"}}`}
	one, two := offer{Configs: []config{a, b}}, offer{Configs: []config{b, a}}
	if string(manifestOf(one)) != string(manifestOf(two)) {
		t.Errorf("got %s and %s", manifestOf(one), manifestOf(two))
	}
	bubble(t, one, nil, func(t *testing.T, r *rig) {
		r.link.hear("b", "ON")
		r.link.onSend = nil
		r.fails("fan", `{"on":true}`, ferrule.Unanswered, true)
		r.link.hear("a", "ON")
		if got := r.values("{}"); string(got["switch_fan"].Value) != "true" || string(got["binary_sensor_fan"].Value) != "true" {
			t.Errorf("got %v", got)
		}
		if got := r.result("fan", `{"on":true}`); got.State["switch_fan"] != true {
			t.Errorf("got %+v", got)
		}
	})
}

func TestOwnersChoice(t *testing.T) {
	o := offer{Configs: []config{
		{"select", "x", "mode", `{"cmd_t":"a/mode","options":["a","b"],"entity_category":"config","dev":{"ids":"x"}}`},
		{"switch", "x", "hidden", `{"cmd_t":"a/hidden","enabled_by_default":false,"dev":{"ids":"x"}}`},
	}}
	m := describe(&o).manifest
	if mode := m.Tool("mode"); mode == nil || !mode.UserOnly {
		t.Errorf("got %+v", mode)
	}
	if m.Tool("hidden") != nil || len(m.Notes) != 0 { // every device of Zigbee2MQTT has one
		t.Errorf("disabled entity is there, or noted: %q", m.Notes)
	}
	o.Settings, o.Disabled = true, true
	m = describe(&o).manifest
	if mode := m.Tool("mode"); mode == nil || mode.UserOnly {
		t.Errorf("got %+v", mode)
	}
	if m.Tool("hidden") == nil {
		t.Error("hidden is missing")
	}
}

// TestUnusable: what cannot be used becomes a note, and the rest works.
func TestUnusable(t *testing.T) {
	o := offer{Configs: append([]config{{"switch", "x", "bad", `{"cmd_t":`}, {"teleporter", "x", "y", `{"cmd_t":"a","dev":{"ids":"x"}}`}}, plug.Configs...)}
	m := describe(&o).manifest
	if m.Tool("relay") == nil || len(m.Notes) != 2 {
		t.Errorf("notes %q", m.Notes)
	}
	if removed(&discovery.Entity{Options: discovery.Options{"cmd_t": "x"}}) || !removed(&discovery.Entity{}) {
		t.Error("removed is wrong")
	}
}

func FuzzGreet(f *testing.F) {
	for _, c := range plug.Configs {
		f.Add(c.Component, c.Object, c.Payload)
	}
	f.Add("device", "x", `{"dev":{"ids":"x"},"o":{"name":"y"},"cmps":{"a":{"p":"switch","cmd_t":"a","stat_t":"b"},"b":{"p":"event","stat_t":"c","event_types":["a"]}}}`)
	f.Fuzz(func(t *testing.T, component, object, payload string) {
		o := offer{Configs: []config{{component, "node", object, payload}, {component, "other", object, payload}}}
		d := describe(&o)
		d.manifest.Bound()
		if _, err := d.manifest.Kind(); err != nil {
			t.Error(err)
		}
		seen := map[string]bool{}
		for _, tool := range d.manifest.Tools {
			if seen[tool.Name] {
				t.Errorf("two tools are called %q", tool.Name)
			}
			seen[tool.Name] = true
		}
		for _, s := range d.states {
			if ferrule.CheckSignal(s.Name) != nil {
				t.Errorf("a state is called %q", s.Name)
			}
		}
	})
}
