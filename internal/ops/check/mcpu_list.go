package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// list is the result of list_tools.
type list struct {
	raw   json.RawMessage
	tools []tool
	pins  []pin
}

// tool is an entry of a list.
type tool struct {
	Name    string
	Text    string
	Schema  json.RawMessage // nil if there is none
	Polling time.Duration   // 0 if it is not polled
}

func (l list) tool(name string) *tool {
	i := slices.IndexFunc(l.tools, func(t tool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &l.tools[i]
}

// pin is an entry of the pins.
type pin struct {
	Pin          *int            `json:"pin"`
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	Description  string          `json:"description"`
	Capabilities map[string]bool `json:"capabilities"`
	Sampling     *struct {
		IntervalMS float64 `json:"interval_ms"`
		BufferSize int     `json:"buffer_size"`
	} `json:"sampling"`

	unsure bool // it may have samples or not
}

// builtIns are the tools that firmware always lists, and sampleTools those that it lists if a
// pin has samples.
var (
	builtIns    = []string{"gpio_write", "gpio_read", "pwm_write", "adc_read", "get_info"}
	sampleTools = []string{"get_pin_summary", "get_pin_buffer", "get_pin_events"}
	i2cTools    = []string{"i2c_scan", "i2c_read_reg", "i2c_write_reg"}
)

// isBuiltIn reports whether the protocol defines a tool.
func isBuiltIn(name string) bool {
	return slices.Contains(builtIns, name) || slices.Contains(sampleTools, name) || slices.Contains(i2cTools, name) || name == "list_tools"
}

// listSize is the expected size of a list.
const listSize = 12 << 10

// listTools calls list_tools once.
func (b *board) listTools(ctx context.Context) reply {
	return b.ask(ctx, "list_tools", "", 5*time.Second+b.lineTime(listSize))
}

// tools reads the list, several times.
func (b *board) tools(ctx context.Context) (string, error) {
	var failed int
	for tries := 0; tries < 5 && len(b.list.tools) == 0; tries++ {
		r := b.listTools(ctx)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case r.outcome == answered && r.err == nil && b.parseList(r):
			continue
		case r.outcome == answered && r.err != nil:
			b.find("mcpu.no-list", r.evidence(), "list_tools was answered with an error: %s", r.err)
		case r.outcome == mangled:
			b.mangled(r)
		case r.outcome == closed, b.found("mcpu.long-line"):
			if err := b.recover(ctx); err != nil {
				return "", err
			}
		}
		failed++
	}
	if len(b.list.tools) == 0 {
		b.find("mcpu.no-list", evidence{}, "list_tools gave no usable list %d times", failed)
		return "", errGiveUp
	}
	again := b.listTools(ctx)
	if again.outcome == answered && again.err == nil && !bytes.Equal(again.result, b.list.raw) {
		b.find("mcpu.changing-list", again.evidence(), "two lists of one connection differ: %d and %d bytes", len(b.list.raw), len(again.result))
		b.parseList(again) // the second one counts
	}
	if err := b.stopped(ctx, again); err != nil {
		return "", err
	}
	b.report.Tools = len(b.list.tools)
	useless := ""
	if n := b.list.withoutPins(); n > 0 {
		useless = fmt.Sprintf(" (%d of them for pins that it does not have)", n)
	}
	return fmt.Sprintf("%d tools%s, %d pins, %d bytes", len(b.list.tools), useless, len(b.list.pins), len(b.list.raw)), nil
}

// toolPins are the types of pins that a built-in tool is for.
var toolPins = map[string][]string{
	"gpio_write": {"digital_output"}, "gpio_read": {"digital_output", "digital_input"}, "pwm_write": {"pwm_output"}, "adc_read": {"adc_input"},
}

// withoutPins counts built-in tools without a pin. A gateway does not count them as tools.
func (l list) withoutPins() (n int) {
	for _, t := range l.tools {
		types, ok := toolPins[t.Name]
		if ok && !slices.ContainsFunc(l.pins, func(p pin) bool { return slices.Contains(types, p.Type) }) {
			n++
		}
	}
	return n
}

// parseList reads a list, and reports whether it is one.
func (b *board) parseList(r reply) bool {
	var raw struct {
		Device string            `json:"device"`
		Tools  []json.RawMessage `json:"tools"`
		Pins   []json.RawMessage `json:"pins"`
	}
	if err := json.Unmarshal(r.result, &raw); err != nil {
		b.find("mcpu.no-list", r.evidence(), "the result of list_tools is invalid: %s", jsonrpc.Reason(err))
		return false
	}
	l := list{raw: r.result}
	if len(raw.Tools) > ferrule.MaxTools-100 {
		b.find("mcpu.too-many-tools", r.evidence(), "the list has %d tools", len(raw.Tools))
	}
	for i, entry := range raw.Tools[:min(len(raw.Tools), ferrule.MaxTools)] {
		if t, ok := b.parseTool(i, entry); ok {
			l.tools = append(l.tools, t)
		}
	}
	for i, entry := range raw.Pins[:min(len(raw.Pins), 1024)] {
		var p pin
		switch err := json.Unmarshal(entry, &p); {
		case err != nil:
			b.find("mcpu.bad-pin", evidence{r.sent, string(entry)}, "pin entry %d is invalid: %s", i+1, jsonrpc.Reason(err))
		case p.Pin == nil:
			b.find("mcpu.bad-pin", evidence{r.sent, string(entry)}, "pin entry %d has no number", i+1)
		default:
			l.pins = append(l.pins, p)
		}
	}
	if len(l.tools) == 0 {
		return false
	}
	b.complete(r, l)
	b.list = l
	return true
}

// complete judges whether the list lacks something.
func (b *board) complete(r reply, l list) {
	if n := b.info.PinCount; n != nil && *n != len(l.pins) {
		b.find("mcpu.incomplete-list", r.evidence(), "get_info counts %d pins, and the list has %d", *n, len(l.pins))
	}
	for _, name := range builtIns {
		if l.tool(name) == nil && b.info.Profile != "" { // other devices have what they need
			b.find("mcpu.incomplete-list", r.evidence(), "the list lacks the built-in tool %s", name)
		}
	}
}

// parseTool reads an entry.
func (b *board) parseTool(i int, raw []byte) (tool, bool) {
	var entry struct {
		Name        any             `json:"name"`
		Description any             `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Polling     *struct {
			Enabled    *bool   `json:"enabled"`
			IntervalMS float64 `json:"interval_ms"`
		} `json:"polling"`
	}
	e := evidence{"", string(raw)}
	if err := json.Unmarshal(raw, &entry); err != nil || string(raw) == "null" {
		b.find("mcpu.bad-tool", e, "entry %d of the tools is not a tool", i+1)
		return tool{}, false
	}
	t := tool{Schema: entry.InputSchema}
	var ok bool
	if t.Name, ok = entry.Name.(string); !ok || t.Name == "" {
		b.find("mcpu.bad-tool", e, "entry %d of the tools has no name", i+1)
		return tool{}, false
	}
	if t.Text, ok = entry.Description.(string); !ok && entry.Description != nil {
		b.find("mcpu.bad-tool", e, "the description of %s is not a string", t.Name)
	}
	if p := entry.Polling; p != nil && (p.Enabled == nil || *p.Enabled) {
		if p.IntervalMS < 1 || p.IntervalMS > 65535 {
			b.find("mcpu.bad-polling", e, "%s asks to be polled every %g ms; it must be from 1 to 65535", t.Name, p.IntervalMS)
		} else {
			t.Polling = time.Duration(p.IntervalMS * float64(time.Millisecond))
		}
	}
	return t, true
}

// names judges the names and texts of the tools.
func (b *board) names(context.Context) (string, error) {
	seen := make(map[string]bool)
	for _, t := range b.list.tools {
		e := evidence{"", t.Name}
		switch {
		case t.Name != ferrule.Clean(t.Name, ferrule.MaxToolName): // a gateway puts it in quarantine
			b.find("mcpu.bad-name", e, "%q is longer than %d bytes or has characters that cannot be printed", cutText(t.Name), ferrule.MaxToolName)
		case seen[t.Name]:
			b.find("mcpu.duplicate-tool", e, "%s is listed more than once", t.Name)
		}
		seen[t.Name] = true
		if len(t.Text) > ferrule.MaxText || !ferrule.Visible(t.Text) {
			b.find("mcpu.bad-text", evidence{"", t.Text}, "the description of %q is longer than %d bytes or has characters that nobody sees", cutText(t.Name), ferrule.MaxText)
		}
	}
	own := 0
	for _, t := range b.list.tools {
		if !isBuiltIn(t.Name) {
			own++
		}
	}
	if p := b.profile; p.tools > 0 && (own >= p.tools || len(b.list.pins) >= p.pins) {
		b.find("mcpu.list-full", evidence{}, "the board has %d tools of its own and %d pins; the library keeps %d and %d, and drops more without a word", own, len(b.list.pins), p.tools, p.pins)
	}
	return fmt.Sprintf("%d tools of its own", own), nil
}

// schemas judges what tools declare about their arguments.
func (b *board) schemas(context.Context) (string, error) {
	var bare, without []string
	for _, t := range b.list.tools {
		e := evidence{"", string(t.Schema)}
		if t.Schema == nil || string(t.Schema) == "null" {
			without = append(without, t.Name)
			continue
		}
		if _, err := schema.Compile(t.Schema); err != nil {
			b.find("mcpu.bad-schema", e, "the schema of %s is unusable: %s", cutText(t.Name), err)
			continue
		}
		var s struct {
			Properties map[string]struct {
				Type any `json:"type"`
			} `json:"properties"`
			Required   []string `json:"required"`
			Additional any      `json:"additionalProperties"`
		}
		if json.Unmarshal(t.Schema, &s) != nil {
			continue // properties may be true or false
		}
		for _, name := range s.Required {
			if _, ok := s.Properties[name]; !ok && s.Additional == false {
				b.find("mcpu.bad-schema", e, "the schema of %s requires %q and does not permit it", cutText(t.Name), cutText(name))
			}
		}
		if slices.Contains(sampleTools, t.Name) && s.Properties["pin"].Type == "string" {
			b.find("mcpu.string-pin", e, "%s declares pin as a string", t.Name)
		}
		if len(s.Properties) == 0 && s.Additional != false && !isBuiltIn(t.Name) {
			bare = append(bare, t.Name)
		}
	}
	if len(bare) > 0 {
		b.find("mcpu.undeclared-arguments", evidence{}, "%d tools declare no arguments and do not exclude any: %s", len(bare), cutText(strings.Join(bare, ", ")))
	}
	if len(without) > 0 {
		b.find("mcpu.no-schemas", evidence{}, "%d tools have no inputSchema: %s", len(without), cutText(strings.Join(without, ", ")))
	}
	return fmt.Sprintf("%d tools with a schema", len(b.list.tools)-len(without)), nil
}

// pinTypes are the types of pins.
var pinTypes = []string{"digital_output", "digital_input", "pwm_output", "adc_input"}

// pins judges the pins.
func (b *board) pins(context.Context) (string, error) {
	seen := make(map[int]bool)
	names := make(map[string]bool)
	for _, p := range b.list.pins {
		text, _ := json.Marshal(p) // it was decoded from JSON
		e := evidence{"", string(text)}
		switch n := *p.Pin; {
		case n < 0 || n > 255:
			b.find("mcpu.bad-pin", e, "pin number %d is not from 0 to 255", n)
		case seen[n]:
			b.find("mcpu.bad-pin", e, "pin %d is listed more than once", n)
		case p.Name == "" || p.Name != ferrule.Clean(p.Name, ferrule.MaxWord) || names[p.Name]:
			b.find("mcpu.bad-pin", e, "the name %q of pin %d is empty, too long or not unique", cutText(p.Name), n)
		case !slices.Contains(pinTypes, p.Type):
			b.find("mcpu.bad-pin", e, "pin %d has the type %q, which is none of %s", n, cutText(p.Type), strings.Join(pinTypes, ", "))
		case p.Sampling != nil && (p.Sampling.IntervalMS < 1 || p.Sampling.IntervalMS > 65535 || p.Sampling.BufferSize < 0):
			b.find("mcpu.bad-pin", e, "the sampling of pin %d is out of range", n)
		case p.Capabilities["buffer"] && (p.Sampling == nil || p.Sampling.BufferSize == 0):
			b.find("mcpu.bad-pin", e, "pin %d has a buffer, and does not say how large it is", n)
		}
		seen[*p.Pin], names[p.Name] = true, true
	}
	return fmt.Sprintf("%d pins", len(b.list.pins)), nil
}
