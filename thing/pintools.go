package thing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// PinInfo describes a pin that a built-in tool works on.
type PinInfo struct {
	Number int    `json:"number"`
	Name   string `json:"name,omitempty"`
	Type   string `json:"type,omitempty"`
	Text   string `json:"text,omitempty"`
	// Abilities lists what is kept about its samples: buffer, events or summary.
	Abilities []string `json:"abilities,omitempty"`
	// Sampling is nil if the pin is not sampled.
	Sampling *PinSampling `json:"sampling,omitempty"`
}

// PinSampling is how often a pin is sampled, as a duration such as 1s, and how many samples are
// kept.
type PinSampling struct {
	Interval string `json:"interval"`
	Size     int    `json:"size"`
}

func (p *Pin) info() PinInfo {
	info := PinInfo{Number: p.number, Name: p.name, Type: p.typ, Text: p.text}
	if p.interval == 0 {
		return info
	}
	info.Sampling = &PinSampling{p.interval.String(), p.size}
	for _, ability := range []struct {
		name string
		has  bool
	}{{"buffer", p.size > 0}, {"events", p.low != nil}, {"summary", p.summary}} {
		if ability.has {
			info.Abilities = append(info.Abilities, ability.name)
		}
	}
	return info
}

// pinTools are the built-in tools of MCP/U in the form of other protocols. Writing is not
// idempotent: after a restart of the device, a second write could start a motor again.
var pinTools = []struct {
	name, text string
	reads      bool
	on         func(*Pin) bool // selects its pins
	more       string          // further properties
	required   []string
}{
	{"gpio_write", "Set a digital output high or low", false, func(p *Pin) bool { return p.typ == digitalOutput },
		`,"value":{"type":"boolean","description":"true is high, false is low"}`, []string{"pin", "value"}},
	{"gpio_read", "Read a digital pin", true, func(p *Pin) bool { return p.typ == digitalOutput || p.typ == digitalInput }, "", []string{"pin"}},
	{"pwm_write", "Set the duty of a PWM output", false, func(p *Pin) bool { return p.typ == pwmOutput },
		`,"duty":{"type":"integer","minimum":0,"maximum":255,"description":"0 is off, 255 is fully on"}`, []string{"pin", "duty"}},
	{"adc_read", "Measure an analog input", true, func(p *Pin) bool { return p.typ == adcInput }, "", []string{"pin"}},
	{"get_pin_summary", "Get minimum, maximum and average of a pin's samples", true, func(p *Pin) bool { return p.interval > 0 && p.summary }, "", []string{"pin"}},
	{"get_pin_buffer", "Get a pin's samples, the oldest first", true, func(p *Pin) bool { return p.interval > 0 && p.size > 0 },
		`,"limit":{"type":"integer","minimum":1,"description":"how many samples, the oldest first"}`, []string{"pin"}},
	{"get_pin_events", "Check a pin's latest sample against its thresholds", true, func(p *Pin) bool { return p.interval > 0 && p.low != nil }, "", []string{"pin"}},
}

// pinTools returns the built-in tools that the device has pins for.
func (d *Device) pinTools() (all []Description) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range pinTools {
		tool := Description{Name: t.name, Text: t.text, Reads: t.reads}
		var numbers, names []string
		for _, p := range d.pins {
			if t.on(p) {
				tool.Pins = append(tool.Pins, p.info())
				numbers = append(numbers, fmt.Sprint(p.number))
				names = append(names, fmt.Sprintf("%d is %s", p.number, p.name))
			}
		}
		if tool.Pins == nil {
			continue
		}
		tool.Schema = fmt.Appendf(nil, `{"type":"object","properties":{"pin":{"type":"integer","enum":[%s],"description":%s}%s},"required":%s,"additionalProperties":false}`,
			strings.Join(numbers, ","), quoted("pin number: "+strings.Join(names, ", ")), t.more, quoted(t.required))
		all = append(all, tool)
	}
	return all
}

// quoted returns a text or a list of texts as JSON.
func quoted(v any) string {
	data, err := json.Marshal(v)
	if err != nil { // cannot happen: it has only strings
		panic(err)
	}
	return string(data)
}

// pinTool returns a built-in tool that the device has pins for, or nil.
func (d *Device) pinTool(name string) *tool {
	all := d.pinTools()
	i := slices.IndexFunc(all, func(t Description) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &tool{Description: all[i], call: func(_ context.Context, params json.RawMessage) (any, error) {
		schema, err := ParseSchema(all[i].Schema)
		if err != nil {
			return nil, err
		}
		in, wrong := decode[arguments](params, schema)
		if wrong != nil {
			return nil, badArguments(wrong)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		result, err := builtins[name](d, in)
		var refused *rpcError
		if errors.As(err, &refused) && refused.Code == badParams {
			err = &RefusedError{Reason: refused.Message}
		}
		return result, err
	}}
}
