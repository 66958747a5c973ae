package entity

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
)

// TestCommandInArgument: an argument cannot become another command. The templates are those
// of the manuals.
func TestCommandInArgument(t *testing.T) {
	for _, c := range []struct {
		component, tool string
		options         discovery.Options
		args            map[string]any
	}{
		{"lock", "x_lock", discovery.Options{"command_topic": "t", "code_format": `\d{4}`, "command_template": `{ "action": "{{ value }}", "code":"{{ code }}" }`},
			map[string]any{"code": `1234","action":"UNLOCK`}},
		{"alarm_control_panel", "x_arm", discovery.Options{"command_topic": "t", "command_template": `{ "action": "{{ action }}", "code": "{{ code }}" }`},
			map[string]any{"mode": "home", "code": `1","action":"DISARM`}},
		{"text", "x", discovery.Options{"command_topic": "t", "command_template": `{"text":"{{ value }}"}`}, map[string]any{"value": `a","state":"UNLOCK`}},
		{"text", "x", discovery.Options{"command_topic": "t", "command_template": `{"text": {{ value }} }`}, map[string]any{"value": `"a","state":"UNLOCK"`}},
		{"notify", "x", discovery.Options{"command_topic": "t", "command_template": `{"text":"{{ value }}"}`}, map[string]any{"message": `a","state":"UNLOCK`}},
	} {
		d := Describe(&discovery.Entity{Component: c.component, ObjectID: "x", Options: c.options})
		for _, tool := range d.Tools {
			if tool.Name == c.tool {
				if command, err := tool.Command(c.args); err == nil {
					t.Errorf("%s published %s", c.tool, command.Publish[0].Payload)
				}
			}
		}
	}
}

// TestTextsInTemplates: texts that do no harm are sent as they are, and so are payloads of
// the device that look like a command.
func TestTextsInTemplates(t *testing.T) {
	for _, c := range []struct {
		component      string
		template, text string
		want           string
	}{
		{"text", `{"text":"{{ value }}"}`, `Hello, [you]`, `{"text":"Hello, [you]"}`},
		{"text", `{"text":{{ value | tojson }}}`, `say "hi"`, `{"text":"say \"hi\""}`},
		{"text", `{{ value }}`, `a "b", c`, `a "b", c`},
		{"text", `{"h":{{ value.split(':')[0] }}}`, `12:30`, `{"h":12}`},
		{"switch", `{{ value }}`, ``, `{"state":"ON","a":[1]}`},
	} {
		d := Describe(&discovery.Entity{Component: c.component, ObjectID: "x", Options: discovery.Options{
			"command_topic": "t", "command_template": c.template, "payload_on": `{"state":"ON","a":[1]}`,
		}})
		command, err := d.Tools[0].Command(map[string]any{"value": c.text, "on": true})
		if err != nil || string(command.Publish[0].Payload) != c.want {
			t.Errorf("%s with %q: %v, %s", c.template, c.text, err, command.Publish)
		}
	}
}
