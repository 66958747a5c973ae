package mcpu_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// TestOverlay applies the protocol's overlay to a board whose schemas are missing or
// wrong.
func TestOverlay(t *testing.T) {
	file, err := overlay.Parse(mcpu.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	effective := overlay.NewSet(file).Apply(mcpu.Name, "", "board", &ferrule.Manifest{
		Tools: []ferrule.Tool{
			{Name: "gpio_write"},
			{Name: "gpio_read"},
			{Name: "pwm_write"},
			{Name: "adc_read"},
			{Name: "get_info"},
			{Name: "get_pin_buffer", Input: json.RawMessage(`{"type":"object","properties":{"pin":{"type":"string"}},"required":["pin"]}`)},
			{Name: "get_pin_events"},
			{Name: "i2c_write_reg"},
			{Name: "i2c_read_reg"},
			{Name: "custom", Input: json.RawMessage(`{"type":"object","required":[],"properties":{}}`)},
		},
		Pins: []ferrule.Pin{
			{Number: 2, Name: "led", Type: "digital_output"},
			{Number: 5, Name: "button", Type: "digital_input"},
			{Number: 34, Name: "light", Type: "adc_input", Abilities: []string{"buffer"}},
		},
	})
	for _, test := range []struct {
		tool   string
		effect ferrule.Effect
		args   string
		want   string // the errors in args, or the quarantine
	}{
		{"gpio_write", ferrule.Changes, `{"pin":2,"value":true}`, ``},
		{"gpio_write", ferrule.Changes, `{"pin":2,"value":1}`, `value must be true or false, got 1`},
		{"gpio_write", ferrule.Changes, `{"pin":258,"value":true}`, `pin must be 2, got 258`},
		{"gpio_write", ferrule.Changes, `{"pin":34,"value":true}`, `pin must be 2, got 34`},
		{"gpio_write", ferrule.Changes, `{}`, `pin is missing; value is missing`},
		{"gpio_write", ferrule.Changes, `{"pin":2,"value":true,"for":5}`, `for is unknown`},
		{"gpio_read", ferrule.Reads, `{"pin":5}`, ``},
		{"gpio_read", ferrule.Reads, `{"pin":34}`, `pin must be one of 2, 5, got 34`},
		{"adc_read", ferrule.Reads, `{"pin":34}`, ``},
		{"pwm_write", ferrule.Changes, ``, `the device has no pin of type pwm_output`},
		{"get_info", ferrule.Reads, `{}`, ``},
		{"get_pin_buffer", ferrule.Reads, `{"pin":34,"limit":5}`, ``},
		{"get_pin_buffer", ferrule.Reads, `{"pin":"light"}`, `pin must be an integer, got "light"`},
		{"get_pin_buffer", ferrule.Reads, `{"pin":34,"limit":0}`, `limit must be at least 1, got 0`},
		{"get_pin_events", ferrule.Reads, ``, `the device has no pin of type adc_input or digital_input with ability events`},
		{"i2c_write_reg", ferrule.Changes, `{"address":200,"reg":0,"value":1}`, `address must be at most 127, got 200`},
		{"i2c_read_reg", ferrule.Reads, `{"address":60,"reg":0,"length":33}`, `length must be at most 32, got 33`},
		{"custom", ferrule.Changes, `{"anything":[1]}`, ``},
	} {
		tool := effective.Tool(test.tool)
		if tool.Effect != test.effect {
			t.Errorf("%s %s, want %s", test.tool, tool.Effect, test.effect)
		}
		if tool.Idempotent {
			t.Errorf("%s is declared idempotent", test.tool)
		}
		if lacks := strings.HasPrefix(test.want, "the device has no pin"); tool.LacksPin() != lacks {
			t.Errorf("%s lacks a pin: %t, want %t", test.tool, !lacks, lacks)
		}
		got := tool.Quarantine
		if got == "" {
			args, _, err := schema.DecodeArgs([]byte(test.args))
			if err != nil {
				t.Fatal(err)
			}
			got = strings.Join(tool.Check(args), "; ")
		}
		if got != test.want {
			t.Errorf("%s %s:\n got %s\nwant %s", test.tool, test.args, got, test.want)
		}
	}
}

// TestOverlayWithoutAbilities: a board with little memory does not list the abilities
// of its pins, and get_pin_* still works.
func TestOverlayWithoutAbilities(t *testing.T) {
	file, err := overlay.Parse(mcpu.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	effective := overlay.NewSet(file).Apply(mcpu.Name, "", "board", &ferrule.Manifest{
		Tools: []ferrule.Tool{{Name: "get_pin_buffer"}},
		Pins:  []ferrule.Pin{{Number: 0, Type: "adc_input"}, {Number: 13, Type: "digital_output"}},
	})
	tool := effective.Tool("get_pin_buffer")
	if tool.Quarantine != "" || tool.Check(map[string]any{"pin": json.Number("0")}) != nil {
		t.Errorf("quarantine %q", tool.Quarantine)
	}
}

// TestOverlayIsClosed: the schemas allow no arguments besides those of the protocol.
func TestOverlayIsClosed(t *testing.T) {
	var file struct {
		Tools map[string]struct {
			Input struct {
				AdditionalProperties *bool `json:"additionalProperties"`
			} `json:"input"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(mcpu.Overlay, &file); err != nil {
		t.Fatal(err)
	}
	for name, tool := range file.Tools {
		if open := tool.Input.AdditionalProperties; open == nil || *open {
			t.Errorf("%s accepts unknown arguments", name)
		}
	}
}
