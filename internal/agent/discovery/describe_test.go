package discovery

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var node = Node{ID: "abc123", Name: "here", Version: "1", URL: "http://127.0.0.1:3377", Prefix: "homeassistant"}

var bench = &ferrule.Device{ID: "bench", Title: "Test bench", Address: "usb:2341:0043", Node: "here", Trust: ferrule.TrustAdopted, State: ferrule.StateOnline, Labels: map[string]string{"room": "Lab"}}

func tool(name, input string, effect ferrule.Effect) ferrule.Tool {
	return ferrule.Tool{Name: name, Input: json.RawMessage(input), Effect: effect}
}

const (
	noArguments = `{"type":"object","properties":{}}`
	oneBoolean  = `{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"]}`
	oneNumber   = `{"type":"object","properties":{"level":{"type":"integer","minimum":0,"maximum":10}},"required":["level"]}`
	oneEnum     = `{"type":"object","properties":{"mode":{"type":"string","enum":["off","eco","boost"]}},"required":["mode"]}`
	oneText     = `{"type":"object","properties":{"text":{"type":"string","maxLength":40}},"required":["text"]}`
	two         = `{"type":"object","properties":{"pin":{"type":"integer"},"value":{"type":"boolean"}},"required":["pin","value"]}`
)

func describe(m *ferrule.Manifest, signals ...Signal) Description {
	return Describe(Input{Node: node, Device: bench, Manifest: m, Signals: signals})
}

func components(d Description) map[string]string {
	all := make(map[string]string)
	for key, e := range d.Entities {
		all[key] = e.Component
	}
	return all
}

// TestDescribe: each tool and signal becomes what the table of components says.
func TestDescribe(t *testing.T) {
	m := &ferrule.Manifest{Tools: []ferrule.Tool{
		tool("relay", oneBoolean, ferrule.Changes), tool("fan", oneBoolean, ferrule.Changes), tool("set_level", oneNumber, ferrule.Changes), tool("speed", oneNumber, ferrule.Changes),
		tool("mode", oneEnum, ferrule.Changes), tool("show", oneText, ferrule.Changes), tool("say", oneText, ferrule.Changes), tool("beep", noArguments, ferrule.Changes),
		tool("gpio_write", two, ferrule.Changes), tool("fire", noArguments, ferrule.Endangers), tool("look", noArguments, ferrule.Reads),
		{Name: "anything", Effect: ferrule.Changes},
		{Name: "people", Input: json.RawMessage(noArguments), Effect: ferrule.Changes, UserOnly: true},
		{Name: "broken", Input: json.RawMessage(noArguments), Effect: ferrule.Changes, Quarantine: "reason"},
		{Name: "polled", Input: json.RawMessage(noArguments), Effect: ferrule.Changes, Poll: 1},
	}}
	d := describe(m, Signal{Name: "relay", State: true, Binary: true}, Signal{Name: "get_level"}, Signal{Name: "mode"}, Signal{Name: "show_text"},
		Signal{Name: "temperature", Unit: "°C"}, Signal{Name: "contact", State: true, Binary: true}, Signal{Name: "odd", Unit: "furlong"})
	want := map[string]string{
		"relay": "switch", "fan_on": "button", "fan_off": "button", "set_level": "number", "mode": "select", "show": "text", "beep": "button",
		"temperature": "sensor", "contact": "binary_sensor", "odd": "sensor", outcomeKey: "sensor",
	}
	if got := components(d); !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if c := d.Entities["temperature"].config; c["device_class"] != "temperature" || c["state_class"] != "measurement" {
		t.Errorf("temperature is %v", c)
	}
	if c := d.Entities["odd"].config; c["device_class"] != nil || c["unit_of_measurement"] != "furlong" {
		t.Errorf("a unit without a class: %v", c)
	}
	var config struct {
		Device struct {
			Identifiers []string
			Name        string
			Area        string `json:"suggested_area"`
			Via         string `json:"via_device"`
		}
		Availability []struct{ Topic string }
		Mode         string `json:"availability_mode"`
		Origin       struct{ Name string }
	}
	if err := json.Unmarshal(d.Config, &config); err != nil {
		t.Fatal(err)
	}
	if config.Device.Name != "Test bench" || config.Device.Area != "Lab" || config.Device.Via != "ferrule_abc123" || config.Origin.Name != "Ferrule" || config.Mode != "all" || len(config.Availability) != 2 {
		t.Errorf("got %+v", config)
	}
	if string(d.Config) != string(describe(m, Signal{Name: "relay", State: true, Binary: true}, Signal{Name: "get_level"}, Signal{Name: "mode"}, Signal{Name: "show_text"},
		Signal{Name: "temperature", Unit: "°C"}, Signal{Name: "contact", State: true, Binary: true}, Signal{Name: "odd", Unit: "furlong"}).Config) {
		t.Error("the message is not the same each time")
	}
}

// TestDeviceKey: the key survives a new name and is another one for another device.
func TestDeviceKey(t *testing.T) {
	renamed := *bench
	renamed.ID, renamed.Named = "other", true
	if DeviceKey(node, bench) != DeviceKey(node, &renamed) {
		t.Error("another name is another device")
	}
	local, far := *bench, node
	local.Local, far.ID = true, "def456"
	if DeviceKey(node, &local) == DeviceKey(far, &local) {
		t.Error("a local address is the same device on another node")
	}
	if DeviceKey(node, bench) != DeviceKey(far, bench) {
		t.Error("a board is another device on another node")
	}
	for _, address := range []string{"", "a/b+c#d", strings.Repeat("é", 100)} {
		dev := *bench
		dev.Address = address
		if key := DeviceKey(node, &dev); strings.ContainsAny(key, "/+# ") || len(key) > 64 {
			t.Errorf("%q is not a level of a topic", key)
		}
	}
}

// TestOwnersEntities: what endangers is published only if the owner says how.
func TestOwnersEntities(t *testing.T) {
	m := &ferrule.Manifest{
		Tools: []ferrule.Tool{tool("unlock", noArguments, ferrule.Endangers), tool("lock", noArguments, ferrule.Changes), tool("gpio_write", two, ferrule.Changes), tool("move", oneNumber, ferrule.Endangers), tool("beep", noArguments, ferrule.Changes)},
		Entities: map[string]ferrule.Entity{
			"front": {Component: "lock", Name: "Front door", Signal: "locked", Commands: map[string]ferrule.EntityCommand{
				"lock": {Action: ferrule.Action{Tool: "lock"}}, "unlock": {Action: ferrule.Action{Tool: "unlock"}}}},
			"pump": {Component: "switch", Commands: map[string]ferrule.EntityCommand{
				"on":  {Action: ferrule.Action{Tool: "gpio_write", Args: json.RawMessage(`{"pin":2,"value":true}`)}},
				"off": {Action: ferrule.Action{Tool: "gpio_write", Args: json.RawMessage(`{"pin":2,"value":false}`)}}}},
			"gate": {Component: "cover", Class: "gate", Signal: "position", Inverted: true, Commands: map[string]ferrule.EntityCommand{
				"set": {Action: ferrule.Action{Tool: "move", Args: json.RawMessage(`{"fast":true}`)}, Argument: "level"}}},
			"beep":    {Component: ferrule.EntityNone},
			"lock":    {Component: ferrule.EntityNone},
			"missing": {Component: "button", Commands: map[string]ferrule.EntityCommand{"press": {Action: ferrule.Action{Tool: "nothing"}}}},
		},
	}
	d := describe(m, Signal{Name: "locked", State: true, Binary: true}, Signal{Name: "position", Unit: "%"})
	want := map[string]string{"front": "lock", "pump": "switch", "gate": "cover", outcomeKey: "sensor"}
	if got := components(d); !maps.Equal(got, want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
	for _, c := range []struct{ entity, payload, tool, args, state string }{
		{"front", "UNLOCK", "unlock", "", "UNLOCKED"}, {"front", "LOCK", "lock", "", "LOCKED"},
		{"pump", "ON", "gpio_write", `{"pin":2,"value":true}`, "ON"},
		{"gate", "30", "move", `{"fast":true,"level":70}`, ""}, {"gate", "OPEN", "move", `{"fast":true,"level":0}`, ""},
	} {
		action, state, ok := d.Entities[c.entity].Command([]byte(c.payload))
		if !ok || action.Tool != c.tool || string(action.Args) != c.args || state != c.state {
			t.Errorf("%s %s: %s %s, %q, %v", c.entity, c.payload, action.Tool, action.Args, state, ok)
		}
	}
	for entity, states := range map[string]map[float64]string{"front": {1: "LOCKED", 0: "UNLOCKED"}, "gate": {0: "100", 100: "0", 25: "75"}} {
		for value, want := range states {
			if got, ok := d.Entities[entity].State(value); !ok || got != want {
				t.Errorf("%s at %v is %s, want %s", entity, value, got, want)
			}
		}
	}
}

// TestCommands: what Home Assistant sends becomes arguments, and nothing else does.
func TestCommands(t *testing.T) {
	d := describe(&ferrule.Manifest{Tools: []ferrule.Tool{
		tool("relay", oneBoolean, ferrule.Changes), tool("level", oneNumber, ferrule.Changes), tool("mode", oneEnum, ferrule.Changes), tool("show", oneText, ferrule.Changes), tool("beep", noArguments, ferrule.Changes),
	}}, Signal{Name: "relay"}, Signal{Name: "level"}, Signal{Name: "mode"}, Signal{Name: "show"})
	for _, c := range []struct{ entity, payload, args, state string }{
		{"relay", "ON", `{"on":true}`, "ON"}, {"relay", "OFF", `{"on":false}`, "OFF"}, {"level", "5", `{"level":5}`, "5"}, {"level", "5.0", `{"level":5}`, "5"},
		{"level", "2.5", `{"level":2.5}`, "2.5"}, {"mode", "eco", `{"mode":"eco"}`, "eco"}, {"show", `a "b"`, `{"text":"a \"b\""}`, `a "b"`}, {"beep", "PRESS", "", ""},
	} {
		action, state, ok := d.Entities[c.entity].Command([]byte(c.payload))
		if !ok || string(action.Args) != c.args || state != c.state {
			t.Errorf("%s %s: %s, %q, %v", c.entity, c.payload, action.Args, state, ok)
		}
	}
	for entity, payload := range map[string]string{"relay": "on", "level": "NaN", "mode": "turbo", "beep": "", "show": "\xff"} {
		if action, _, ok := d.Entities[entity].Command([]byte(payload)); ok {
			t.Errorf("%s %q is %s", entity, payload, action.Args)
		}
	}
	if state, ok := d.Entities["mode"].State(2); !ok || state != "boost" {
		t.Errorf("mode 2 is %q", state)
	}
	if state, ok := d.Entities["mode"].State(7); ok {
		t.Errorf("mode 7 is %q", state)
	}
}

// TestVisibility: what the principal of the broker may not use is not published.
func TestVisibility(t *testing.T) {
	d := Describe(Input{Node: node, Device: bench, Manifest: &ferrule.Manifest{Tools: []ferrule.Tool{tool("beep", noArguments, ferrule.Changes), tool("relay", oneBoolean, ferrule.Changes)}},
		Seen: ferrule.Visibility{Shows: func(_ *ferrule.Device, _ ferrule.Operation, t *ferrule.Tool) bool { return t.Name == "beep" }}})
	if got := slices.Sorted(maps.Keys(d.Entities)); !slices.Equal(got, []string{"beep", outcomeKey}) {
		t.Errorf("got %v", got)
	}
}

func FuzzCommand(f *testing.F) {
	d := describe(&ferrule.Manifest{Tools: []ferrule.Tool{
		tool("relay", oneBoolean, ferrule.Changes), tool("level", oneNumber, ferrule.Changes), tool("mode", oneEnum, ferrule.Changes), tool("show", oneText, ferrule.Changes), tool("beep", noArguments, ferrule.Changes),
	}}, Signal{Name: "relay"}, Signal{Name: "level"}, Signal{Name: "mode"}, Signal{Name: "show"})
	for _, seed := range []string{"ON", "5.0", "007", "1e99", "eco", "PRESS", "None", "\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for key, e := range d.Entities {
			action, _, ok := e.Command(payload)
			if ok && len(action.Args) > 0 && !json.Valid(action.Args) {
				t.Errorf("%s: %q becomes %s", key, payload, action.Args)
			}
		}
	})
}

func FuzzParseOwn(f *testing.F) {
	f.Add(describe(&ferrule.Manifest{Tools: []ferrule.Tool{tool("beep", noArguments, ferrule.Changes)}}).Config)
	f.Add([]byte(`{"origin":{"name":"Ferrule"},"components":{"a":{}}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if r, ok := parseOwn(payload, node.status()); ok && r.components == nil {
			t.Error("a message without components")
		}
	})
}
