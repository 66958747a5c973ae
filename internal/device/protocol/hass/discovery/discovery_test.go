package discovery_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
)

func TestParseTopic(t *testing.T) {
	for topic, want := range map[string]discovery.Topic{
		"homeassistant/light/0x0015/light/config": {Component: "light", NodeID: "0x0015", ObjectID: "light"},
		"homeassistant/switch/relay-1/config":     {Component: "switch", ObjectID: "relay-1"},
		"homeassistant/device/plug/config":        {Component: "device", ObjectID: "plug"},
		"homeassistant/device/a_b/plug/config":    {Component: "device", NodeID: "a_b", ObjectID: "plug"},
		// Home Assistant drops these, and so do we.
		"homeassistant/sensor/0x0015/ntc status/config": {},
		"homeassistant/sensor/ä/config":                 {},
		"homeassistant/sensor//x/config":                {},
		"homeassistant/sensor/x//config":                {},
		"homeassistant/sensor/config":                   {},
		"homeassistant/Sensor/x/config":                 {},
		"homeassistant//x/config":                       {},
		"homeassistant/sensor/a/b/c/config":             {},
		"homeassistant/sensor/a/b/state":                {},
		"homeassistant/status":                          {},
		"homeassistants/sensor/a/config":                {},
		"other/sensor/a/config":                         {},
		"":                                              {},
		"homeassistant/sensor/" + strings.Repeat("a", 256) + "/config": {},
	} {
		got, ok := discovery.ParseTopic("homeassistant", topic)
		if ok != (want != discovery.Topic{}) || ok && got != want {
			t.Errorf("%s: got %+v, %t", topic, got, ok)
		}
	}
	if got, ok := discovery.ParseTopic("my/prefix", "my/prefix/light/a/config"); !ok || got.ObjectID != "a" {
		t.Errorf("with a longer prefix: got %+v, %t", got, ok)
	}
}

// TestForms is the plug of the documentation, in both forms: the entities are equal.
func TestForms(t *testing.T) {
	const (
		device = `"dev":{"ids":"plug-7f3a","name":"Kettle","mf":"Acme","mdl":"Meter plug","mdl_id":"AP-1","sw":"2.1.0","cns":[["mac","02:00:5E:00:7f:3a"]]},"o":{"name":"acme-fw","sw":"2.1.0"}`
		relay  = `"uniq_id":"7f3a_relay","name":null,"dev_cla":"outlet","cmd_t":"acme/7f3a/set","val_tpl":"{{ value_json.relay }}"`
		power  = `"uniq_id":"7f3a_w","dev_cla":"power","unit_of_meas":"W","stat_cla":"measurement","val_tpl":"{{ value_json.w }}","exp_aft":120`
		shared = `"avty_t":"acme/7f3a/up","stat_t":"acme/7f3a/state"`
	)
	whole := parse(t, "device/plug-7f3a", `{`+device+`,`+shared+`,"cmps":{"relay":{"p":"switch",`+relay+`},"power":{"p":"sensor",`+power+`}}}`)
	if !whole.Whole || len(whole.Entities) != 2 || len(whole.Notes) != 0 {
		t.Fatalf("got %+v", whole)
	}
	want := discovery.Device{Identifiers: []string{"plug-7f3a"}, MAC: "02005e007f3a", Name: "Kettle", Manufacturer: "Acme", Model: "Meter plug", ModelID: "AP-1", Version: "2.1.0"}
	if !reflect.DeepEqual(whole.Device, want) || whole.Device.Key() != "plug-7f3a" {
		t.Errorf("got %+v", whole.Device)
	}
	if (whole.Origin != discovery.Origin{Name: "acme-fw", Version: "2.1.0"}) {
		t.Errorf("got %+v", whole.Origin)
	}
	for i, single := range []*discovery.Message{
		parse(t, "sensor/plug-7f3a/power", `{`+device+`,`+shared+`,`+power+`}`),
		parse(t, "switch/plug-7f3a/relay", `{`+device+`,`+shared+`,`+relay+`}`),
	} {
		if single.Whole || len(single.Entities) != 1 {
			t.Fatalf("got %+v", single)
		}
		got, want := whole.Entities[i], single.Entities[0]
		if got.Topic != "device/plug-7f3a" || want.Topic != want.Component+"/plug-7f3a/"+want.ObjectID {
			t.Errorf("the topics are %s and %s", got.Topic, want.Topic)
		}
		got.Topic = want.Topic
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if !reflect.DeepEqual(whole.Device, single.Device) || whole.Origin != single.Origin {
			t.Errorf("the devices differ: %+v", single.Device)
		}
	}
	options := whole.Entities[1].Options
	if options.Has("name") || options.Text("state_topic", "") != "acme/7f3a/state" {
		t.Errorf("got %v", options)
	}
}

// TestWhole has what only messages about a whole device can say.
func TestWhole(t *testing.T) {
	const start = `{"device":{"identifiers":["a"]},"origin":{"name":"o"},`
	m := parse(t, "device/node/thing", start+`"state_topic":"~/all","qos":1,"availability":{"t":"~/up"},"components":{
		"gone":{"p":"switch"},
		"own":{"p":"switch","~":"base","state_topic":"mine/~","qos":2,"cmd_t":"~"},
		"other one":{"platform":"sensor","~":"x"},
		"other_one":{"platform":"sensor","name":"second"},
		"none":{"name":"x"}, "text":"x", "device":{"p":"device","name":"x"}}}`)
	if len(m.Entities) != 3 || len(m.Notes) != 4 {
		t.Fatalf("got %+v", m)
	}
	other, gone, own := m.Entities[0], m.Entities[1], m.Entities[2]
	if gone.ObjectID != "gone" || gone.NodeID != "node/thing" || len(gone.Options) != 0 {
		t.Errorf("got %+v", gone)
	}
	if got := own.Options; got.Text("state_topic", "") != "mine/base" || got.Text("qos", "") != "2" || got.Text("command_topic", "") != "base" {
		t.Errorf("got %+v", got)
	}
	// Each entity has the shared availability with a base topic of its own.
	for entity, want := range map[*discovery.Entity]string{&own: "base/up", &other: "x/up"} {
		if got := entity.Options.Objects("availability"); len(got) != 1 || got[0].Text("topic", "") != want {
			t.Errorf("%s: got %v", entity.ObjectID, got)
		}
	}
	if got := other.Options.Text("state_topic", ""); other.ObjectID != "other_one" || got != "x/all" {
		t.Errorf("got %+v", other)
	}
	for name, rest := range map[string]string{
		"unknown key":       `"name":"x","components":{"a":{"p":"switch","name":"x"}}}`,
		"base topic":        `"~":"x","components":{"a":{"p":"switch","name":"x"}}}`,
		"no components":     `"qos":1}`,
		"list":              `"components":[]}`,
		"two keys for list": `"cmps":{},"components":{},"migrate_discovery":true}`,
	} {
		if m, err := discovery.Parse(topic(t, "device/x"), []byte(start+rest)); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
	for _, payload := range []string{`{"device":{"identifiers":["a"]},"components":{}}`, `{"o":{"name":"o"},"components":{}}`} {
		if m, err := discovery.Parse(topic(t, "device/x"), []byte(payload)); err == nil {
			t.Errorf("got %+v", m)
		}
	}
}

func TestMigrate(t *testing.T) {
	for _, at := range []string{"device/a", "switch/a/b"} {
		for _, payload := range []string{`{"migrate_discovery":true}`, ` {"migr_discvry": true } `} {
			if m := parse(t, at, payload); !m.Migrate || len(m.Entities) != 0 || m.Whole != strings.HasPrefix(at, "device") {
				t.Errorf("%s: got %+v", at, m)
			}
		}
		if m, err := discovery.Parse(topic(t, at), []byte(`{"migrate_discovery":false}`)); err == nil {
			t.Errorf("%s: got %+v", at, m)
		}
	}
}

// TestBase has the places in which a base topic is replaced.
func TestBase(t *testing.T) {
	m := parse(t, "switch/a", `{"dev":{"ids":"a"},"~":"home/a","cmd_t":"~/set","stat_t":"state/~","pl_on":"~","avty_t":"a~b","val_tpl":"~/x","json_attr_t":"~",
		"mode_command_topic":"~/x/~","topic":"~","avty":[{"t":"~/up","pl_avail":"~","val_tpl":"v"},{"topic":"up/~"},7]}`)
	want := map[string]string{"command_topic": "home/a/set", "state_topic": "state/home/a", "payload_on": "~", "availability_topic": "a~b", "value_template": "~/x", "mode_command_topic": "home/a/x/home/a", "topic": "home/a"}
	options := m.Entities[0].Options
	for key, want := range want {
		if got := options.Text(key, ""); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if len(options) != len(want)+1 {
		t.Errorf("got %v", options)
	}
	list := options.Objects("availability")
	if len(list) != 2 || list[0].Text("topic", "") != "home/a/up" || list[0].Text("payload_available", "") != "~" || list[0].Text("value_template", "") != "v" || list[1].Text("topic", "") != "up/home/a" {
		t.Errorf("got %v", list)
	}
}

func TestDevice(t *testing.T) {
	for block, want := range map[string]string{
		`{"ids":"one"}`:                  "one",
		`{"ids":["","one","two","one"]}`: "one",
		`{"ids":[7]}`:                    "7",
		`{"ids":[],"cns":[["mac","AA-BB-CC-DD-EE-FF"]]}`:           "aabbccddeeff",
		`{"ids":"","cns":[["upnp","x"],["mac","aabb.ccdd.eeff"]]}`: "aabbccddeeff",
		`{"cns":[["zigbee","0x00158D00000000A2"]]}`:                "00158d00000000a2",
		`{"ids":["` + "a\u202eb" + `","c"]}`:                       "c",
		// No device can be told from others by these.
		`{}`: "", `{"ids":[]}`: "", `{"ids":" "}`: "", `{"ids":null}`: "", `{"ids":{}}`: "", `{"ids":[["a"]]}`: "",
		`{"cns":[["mac","x"]]}`: "", `{"cns":["mac"]}`: "", `{"cns":[["mac",7]]}`: "", `{"cns":"mac"}`: "", `[]`: "", `null`: "",
	} {
		m, err := discovery.Parse(topic(t, "switch/a"), []byte(`{"name":"x","dev":`+block+`}`))
		if (err == nil) != (want != "") || err == nil && m.Device.Key() != want {
			t.Errorf("%s: got %+v, %v", block, m, err)
		}
	}
	m := parse(t, "switch/a", `{"name":"","dev":{"ids":"a","name":" a\u0000b ","hw":1,"sw":2.0,"sn":7,"sa":"Kitchen","via_device":"v"},"o":{"sw":"1"}}`)
	d := m.Device
	if d.Name != "a b" || d.Version != "2.0" || d.Serial != "7" || d.Area != "Kitchen" {
		t.Errorf("got %+v", d)
	}
	if m.Entities[0].Options.Has("name") {
		t.Error("an empty name is a name")
	}
}

// TestPython has the texts and numbers that Python would make of options.
func TestPython(t *testing.T) {
	m := parse(t, "switch/a", `{"dev":{"ids":"a"},"true":true,"false":false,"null":null,"int":5,"float":5.0,"zero":-0,"big":12345678901234567890,"exp":1e5,"tiny":0.00001,
		"huge":1e16,"part":21.50,"text":"5","padded":" 5.5 ","hex":"0x10","nan":"nan","inf":1e999,"list":["a",1,true,null,[]],"object":{},"yes":"Yes","off":"OFF","minus":-1.5}`)
	o := m.Entities[0].Options
	for key, want := range map[string]string{
		"true": "True", "false": "False", "null": "other", "int": "5", "float": "5.0", "zero": "0", "big": "12345678901234567890", "exp": "100000.0",
		"tiny": "1e-05", "huge": "1e+16", "part": "21.5", "text": "5", "list": "other", "object": "other", "missing": "other", "minus": "-1.5",
	} {
		if got := o.Text(key, "other"); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	for key, want := range map[string]float64{"int": 5, "float": 5, "text": 5, "padded": 5.5, "hex": -7, "nan": -7, "inf": -7, "null": -7, "true": -7, "list": -7, "exp": 1e5, "missing": -7} {
		if got := o.Number(key, -7); got != want {
			t.Errorf("%s: got %v, want %v", key, got, want)
		}
	}
	for key, want := range map[string]bool{"true": true, "int": true, "yes": true, "zero": false, "off": false, "false": false} {
		if got := o.Bool(key, !want); got != want {
			t.Errorf("%s: got %t", key, got)
		}
	}
	if got := o.Bool("list", true); !got {
		t.Error("a list is false")
	}
	if got := o.List("list"); !reflect.DeepEqual(got, []string{"a", "1", "True", "None"}) {
		t.Errorf("got %q", got)
	}
	if got := o.List("text"); !reflect.DeepEqual(got, []string{"5"}) {
		t.Errorf("got %q", got)
	}
	if o.List("missing") != nil || o.Has("null") || !o.Has("false") {
		t.Error("missing options are there")
	}
}

// topic returns a topic from its text without prefix and suffix.
func topic(t testing.TB, text string) discovery.Topic {
	t.Helper()
	topic, ok := discovery.ParseTopic("p", "p/"+text+"/config")
	if !ok {
		t.Fatalf("%s is not a topic", text)
	}
	return topic
}

func parse(t testing.TB, at, payload string) *discovery.Message {
	t.Helper()
	m, err := discovery.Parse(topic(t, at), []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// quote returns a text as JSON.
func quote(t testing.TB, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(quoted)
}
