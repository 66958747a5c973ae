package tasmota_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/tasmota"
)

// plug is what a plug with metering says about itself.
const plug = `{"ip":"192.168.1.60","dn":"Washing machine","fn":["Washing machine",null],"hn":"wash-1","mac":"02005E0000B1","md":"Nous A1T","ty":0,"if":0,
"ofln":"Offline","onln":"Online","state":["OFF","ON","TOGGLE","HOLD"],"sw":"15.0.1","t":"wash","ft":"%prefix%/%topic%/","tp":["cmnd","stat","tele"],
"rl":[1,0,0,0,0,0,0,0],"swc":[-1,-1],"btn":[0,0],"so":{"4":0,"11":0,"26":0},"lk":0,"lt_st":0,"ver":1}`

const metering = `{"sn":{"Time":"2026-11-16T12:00:00","ENERGY":{"TotalStartTime":"2026-01-01T00:00:00","Total":12.5,"Power":3,"Voltage":230},"SI7021":{"Temperature":21.5},"TempUnit":"C"},"ver":1}`

// describe returns what the entities of a device are, after translation.
func describe(t *testing.T, config, sensors string) map[string]entity.Described {
	t.Helper()
	payload, err := tasmota.Translate([]byte(config), []byte(sensors))
	if err != nil {
		t.Fatal(err)
	}
	m, err := discovery.Parse(discovery.Topic{Component: "device", ObjectID: "02005E0000B1"}, payload)
	if err != nil || len(m.Notes) > 0 {
		t.Fatalf("%v, notes %v: %s", err, m, payload)
	}
	if m.Device.Key() != "tasmota_02005E0000B1" || m.Device.Name != "Washing machine" || m.Origin.Name != "Tasmota" {
		t.Errorf("the device is %+v of %+v", m.Device, m.Origin)
	}
	all := make(map[string]entity.Described)
	for i := range m.Entities {
		d := entity.Describe(&m.Entities[i])
		if len(d.Notes) > 0 {
			t.Errorf("%s: %v", m.Entities[i].ObjectID, d.Notes)
		}
		all[m.Entities[i].ObjectID] = d
	}
	return all
}

// command returns what a call of the only tool with a name publishes.
func command(t *testing.T, d entity.Described, name string, args map[string]any) (published []string) {
	t.Helper()
	i := slices.IndexFunc(d.Tools, func(tool entity.Tool) bool { return tool.Name == name })
	if i < 0 || d.Tools[i].Quarantine != "" {
		t.Fatalf("no usable tool %s in %+v", name, d.Tools)
	}
	c, err := d.Tools[i].Command(args)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Publish {
		published = append(published, p.Topic+" "+string(p.Payload))
	}
	return published
}

// TestPlug: a plug can be switched, and measures.
func TestPlug(t *testing.T) {
	all := describe(t, plug, metering)
	if got := command(t, all["relay_1"], "relay_1", map[string]any{"on": true}); !slices.Equal(got, []string{"cmnd/wash/POWER1 ON"}) {
		t.Errorf("on: %q", got)
	}
	units := map[string]string{}
	for name, d := range all {
		for _, s := range d.States {
			if name != "relay_1" {
				units[name] = s.Topic + " " + s.Unit
			}
			text, err := s.Template.Render(map[string]any{"value_json": map[string]any{"POWER": "ON", "ENERGY": map[string]any{"Total": 1.5, "Power": 2, "Voltage": 3}, "SI7021": map[string]any{"Temperature": 4}}})
			if err != nil || text == "" {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
	want := map[string]string{"ENERGY_Power": "W", "ENERGY_Total": "kWh", "ENERGY_Voltage": "V", "SI7021_Temperature": "°C"}
	if len(units) != len(want) {
		t.Errorf("sensors are %v", units)
	}
	for name, unit := range want {
		if units[name] != "tele/wash/SENSOR "+unit {
			t.Errorf("%s is %q", name, units[name])
		}
	}
}

// TestLight: a light has the abilities of its channels.
func TestLight(t *testing.T) {
	config := replace(plug, `"rl":[1,`, `"rl":[2,`, `"lt_st":0`, `"lt_st":5`)
	all := describe(t, config, "")
	if got := command(t, all["light_1"], "light_1", map[string]any{"on": true}); len(got) == 0 || got[0] != "cmnd/wash/POWER1 ON" {
		t.Errorf("on: %q", got)
	}
	var names []string
	for _, s := range all["light_1"].States {
		names = append(names, s.Name)
	}
	if len(names) < 4 {
		t.Errorf("states are %v", names)
	}
}

// TestShutter: two relays are one shutter.
func TestShutter(t *testing.T) {
	all := describe(t, replace(plug, `"rl":[1,0,0,0,`, `"rl":[3,3,1,0,`), "")
	if len(all) != 2 {
		t.Errorf("%d entities", len(all))
	}
	if got := command(t, all["shutter_1"], "shutter_1_open", map[string]any{}); !slices.Equal(got, []string{"cmnd/wash/Backlog ShutterOpen1"}) {
		t.Errorf("open: %q", got)
	}
	if got := command(t, all["relay_3"], "relay_3", map[string]any{"on": false}); !slices.Equal(got, []string{"cmnd/wash/POWER3 OFF"}) {
		t.Errorf("off: %q", got)
	}
}

// TestUnusable: other messages are refused.
func TestUnusable(t *testing.T) {
	for _, config := range []string{``, `{}`, `[]`, `{"t":"a","t":"b"}`, replace(plug, `"rl":[1,`, `"rl":[0,`), replace(plug, `["cmnd","stat","tele"]`, `["cmnd"]`)} {
		if payload, err := tasmota.Translate([]byte(config), nil); err == nil {
			t.Errorf("%.60s: %s", config, payload)
		}
	}
	for _, topic := range []string{"tasmota/discovery/02005E0000B1/other", "tasmota/discovery/x/config", "stat/wash/RESULT"} {
		if _, _, ok := tasmota.ParseTopic(topic); ok {
			t.Error(topic)
		}
	}
}

func replace(text string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			panic(pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// FuzzTranslate: nothing that is translated breaks what reads it.
func FuzzTranslate(f *testing.F) {
	f.Add([]byte(plug), []byte(metering))
	f.Fuzz(func(t *testing.T, config, sensors []byte) {
		payload, err := tasmota.Translate(config, sensors)
		if err != nil {
			return
		}
		if m, err := discovery.Parse(discovery.Topic{Component: "device", ObjectID: "02005E0000B1"}, payload); err == nil {
			for i := range m.Entities {
				entity.Describe(&m.Entities[i])
			}
		}
	})
}
