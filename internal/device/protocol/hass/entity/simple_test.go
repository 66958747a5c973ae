package entity_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// describeEntity describes the entity of a config, which is without its device.
func describeEntity(t *testing.T, component, object, config string) entity.Described {
	t.Helper()
	payload := strings.Replace(`{"device":{"identifiers":"d"},`+strings.TrimPrefix(config, "{"), ",}", "}", 1)
	node, own, found := strings.Cut(object, "/")
	if !found {
		node, own = "", object
	}
	m, err := discovery.Parse(discovery.Topic{Component: component, NodeID: node, ObjectID: own}, []byte(payload))
	if err != nil || len(m.Entities) != 1 {
		t.Fatalf("%s: %v", config, err)
	}
	return entity.Describe(&m.Entities[0])
}

// hear returns what a state makes of a payload, or "ignored".
func hear(t *testing.T, d entity.Described, name, payload string) (string, entity.Value) {
	t.Helper()
	for _, s := range d.States {
		if s.Name != name {
			continue
		}
		text := payload
		if s.Template != nil {
			var err error
			if text, err = s.Template.Render(template.Payload([]byte(payload))); err != nil {
				return "ignored", entity.Value{}
			}
		}
		v, ok := s.Convert(text)
		if !ok {
			return "ignored", v
		}
		return string(v.JSON), v
	}
	t.Fatalf("no state %s in %+v", name, d.States)
	return "", entity.Value{}
}

// TestSetters calls tools with one argument: what they refuse, what they publish, which
// state confirms them and which does not.
func TestSetters(t *testing.T) {
	for _, test := range []struct{ component, config, args, publishes, confirms, other string }{
		{"switch", `{"command_topic":"c","state_topic":"s"}`, `{"on":true}`, "c ON", "ON", "OFF"},
		{"switch", `{"command_topic":"c","state_topic":"s","payload_on":1,"payload_off":0,"state_on":true,"state_off":false}`, `{"on":false}`, "c 0", "False", "True"},
		{"switch", `{"command_topic":"c","state_topic":"s","value_template":"{{ value_json.relay }}","command_template":"{\"relay\":\"{{ value }}\"}"}`,
			`{"on":true}`, `c {"relay":"ON"}`, `{"relay":"ON"}`, `{"relay":"OFF"}`},
		{"switch", `{"command_topic":"c","state_topic":"s","optimistic":true}`, `{"on":true}`, "c ON", "", ""},
		{"switch", `{"command_topic":"c"}`, `{"on":true}`, "c ON", "", ""},
		{"switch", `{"command_topic":"c"}`, `{"on":"ON"}`, "invalid", "", ""},
		{"switch", `{"command_topic":"c"}`, `{}`, "invalid", "", ""},
		{"switch", `{"command_topic":"c"}`, `{"on":true,"x":1}`, "invalid", "", ""},
		{"number", `{"command_topic":"c","state_topic":"s"}`, `{"value":5.0}`, "c 5", "5.0", "6"},
		{"number", `{"command_topic":"c","state_topic":"s"}`, `{"value":1e2}`, "c 100", "100", "None"},
		{"number", `{"command_topic":"c"}`, `{"value":100.5}`, "invalid", "", ""},
		{"number", `{"command_topic":"c","min":"-5","max":"5","step":"0.1","state_topic":"s"}`, `{"value":-0.3}`, "c -0.3", "-0.30000000000000004", "-0.4"},
		{"number", `{"command_topic":"c","min":-5,"max":5,"step":0.1}`, `{"value":0.35}`, "invalid", "", ""},
		{"number", `{"command_topic":"c","min":-5,"max":5,"step":0.1}`, `{"value":5.1}`, "invalid", "", ""},
		{"number", `{"command_topic":"c","min":0.5,"max":5.5,"step":1}`, `{"value":1.5}`, "c 1.5", "", ""},
		{"number", `{"command_topic":"c","command_template":"{{ value * 10 }}","max":10}`, `{"value":3}`, "c 30", "", ""},
		{"number", `{"command_topic":"c","min":5,"max":5}`, `{"value":5}`, "quarantine", "", ""},
		{"number", `{"command_topic":"c","step":0}`, `{"value":5}`, "quarantine", "", ""},
		{"number", `{"command_topic":"c","command_template":"{% for x in y %}{% endfor %}"}`, `{"value":5}`, "quarantine", "", ""},
		{"select", `{"command_topic":"c","state_topic":"s","options":["off",1,true,"off"]}`, `{"option":"True"}`, "c True", "True", "off"},
		{"select", `{"command_topic":"c","options":["a"]}`, `{"option":"b"}`, "invalid", "", ""},
		{"select", `{"command_topic":"c","options":[]}`, `{"option":""}`, "quarantine", "", ""},
		{"text", `{"command_topic":"c","state_topic":"s","min":2,"max":4,"pattern":"\\d"}`, `{"value":"1ab"}`, "c 1ab", "1ab", "1a"},
		{"text", `{"command_topic":"c","min":2}`, `{"value":"1"}`, "invalid", "", ""},
		{"text", `{"command_topic":"c"}`, fmt.Sprintf(`{"value":"%0256d"}`, 1), "invalid", "", ""},
		{"text", `{"command_topic":"c","pattern":"\\d"}`, `{"value":"a1"}`, "invalid", "", ""},
		{"text", `{"command_topic":"c","max":256}`, `{"value":"a1"}`, "quarantine", "", ""},
		{"date", `{"command_topic":"c","state_topic":"s"}`, `{"value":"2026-07-31"}`, "c 2026-07-31", "2026-07-31", "2026-08-01"},
		{"date", `{"command_topic":"c"}`, `{"value":"2026-7-31"}`, "invalid", "", ""},
		{"time", `{"command_topic":"c"}`, `{"value":"06:30:00"}`, "c 06:30:00", "", ""},
		{"time", `{"command_topic":"c"}`, `{"value":"24:30:00"}`, "invalid", "", ""},
		{"datetime", `{"command_topic":"c"}`, `{"value":"2026-07-31T06:30:00+02:00"}`, "c 2026-07-31T06:30:00+02:00", "", ""},
		{"datetime", `{"command_topic":"c"}`, `{"value":"2026-07-31"}`, "invalid", "", ""},
		{"button", `{"command_topic":"c"}`, `{}`, "c PRESS", "", ""},
		{"button", `{"command_topic":"c","payload_press":""}`, `{}`, "c ", "", ""},
		{"scene", `{"command_topic":"c"}`, `{}`, "c ON", "", ""},
		{"notify", `{"command_topic":"c"}`, `{"message":"Dinner!"}`, "c Dinner!", "", ""},
		{"notify", `{"command_topic":"c"}`, `{"message":""}`, "invalid", "", ""},
		{"infrared", `{"command_topic":"c","schema":"emitter"}`, `{"message":"[9000,-4500]"}`, "c [9000,-4500]", "", ""},
		{"update", `{"command_topic":"c","payload_install":"go","state_topic":"s"}`, `{}`, "c go", `{"in_progress":true}`, `{"installed_version":"1","latest_version":"2"}`},
		{"update", `{"command_topic":"c","payload_install":"go","state_topic":"s"}`, `{}`, "c go", `{"installed_version":"2","latest_version":"2"}`, `1`},
	} {
		d := describeEntity(t, test.component, "it", test.config)
		if len(d.Tools) != 1 {
			t.Errorf("%s %s: %+v", test.component, test.config, d)
			continue
		}
		published, expect := publish(t, &d.Tools[0], test.args)
		if published != test.publishes {
			t.Errorf("%s %s with %s: got %q, want %q", test.component, test.config, test.args, published, test.publishes)
		}
		if (len(expect) > 0) != (test.confirms != "") {
			t.Errorf("%s %s: expects %v", test.component, test.config, expect)
		}
		for _, e := range expect {
			_, yes := hear(t, d, e.State, test.confirms)
			_, no := hear(t, d, e.State, test.other)
			if !e.Matches(yes) || e.Matches(no) {
				t.Errorf("%s %s: %s confirms is %t, %s is %t", test.component, test.config, test.confirms, e.Matches(yes), test.other, e.Matches(no))
			}
		}
	}
}

// publish calls a tool, and returns what it publishes, or why it does not.
func publish(t *testing.T, tool *entity.Tool, args string) (string, []entity.Expectation) {
	t.Helper()
	if tool.Quarantine != "" {
		return "quarantine", nil
	}
	s, err := schema.Compile(tool.Input)
	if err != nil {
		t.Fatalf("%s: %v", tool.Input, err)
	}
	decoded, _, err := schema.DecodeArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Check(decoded)) > 0 {
		return "invalid", nil
	}
	c, err := tool.Command(decoded)
	if err != nil || len(c.Publish) != 1 || c.Window != 5*time.Second {
		t.Fatalf("%+v, %v", c, err)
	}
	return c.Publish[0].Topic + " " + string(c.Publish[0].Payload), c.Expect
}

// TestToolNames checks names, classes and who may call.
func TestToolNames(t *testing.T) {
	for _, test := range []struct{ component, object, config, want string }{
		{"switch", "relay", `{"command_topic":"c","device_class":"outlet"}`, "relay switch.outlet.set"},
		{"switch", "Relay-1 ä__b_", `{"command_topic":"c","name":"My plug"}`, "Relay_1_b switch.set"},
		{"switch", "7f3a/7F3A_relay", `{"command_topic":"c"}`, "relay switch.set"},
		{"switch", "7f3a/7f3a_", `{"command_topic":"c"}`, "7f3a switch.set"},
		{"switch", "7f3a/7f3abc", `{"command_topic":"c"}`, "7f3abc switch.set"},
		{"number", "pin_code", `{"command_topic":"c"}`, "pin_code number.set [value]"},
		{"switch", "-", `{"command_topic":"c","device_class":"a.b"}`, "switch switch.set"},
		{"button", strings.Repeat("x", 99), `{"command_topic":"c","device_class":"restart"}`, strings.Repeat("x", 48) + " button.restart.press"},
		{"update", "update", `{"command_topic":"c","payload_install":"x","entity_category":"config"}`, "update_install update.install user only"},
		{"number", "n", `{"command_topic":"c","enabled_by_default":false,"entity_category":"diagnostic"}`, "n number.set"},
		{"text", "wifi", `{"command_topic":"c","mode":"password"}`, "wifi text.set [value]"},
		{"text", "admin_code", `{"command_topic":"c"}`, "admin_code text.set [value]"},
	} {
		d := describeEntity(t, test.component, test.object, test.config)
		if len(d.Tools) != 1 {
			t.Errorf("%s: %+v", test.config, d)
			continue
		}
		tool := d.Tools[0]
		got := tool.Name + " " + tool.Class
		if tool.UserOnly {
			got += " user only"
		}
		if len(tool.Secrets) > 0 {
			got += fmt.Sprint(" ", tool.Secrets)
		}
		if got != test.want || tool.Effect != "" || tool.Idempotent {
			t.Errorf("%s: got %s, want %s", test.config, got, test.want)
		}
		shown, err := json.Marshal(tool.Tool)
		if err != nil || strings.Contains(string(shown), "My plug") || strings.Contains(string(shown), `"c"`) {
			t.Errorf("%s, %v: has something of one device", shown, err)
		}
	}
}
