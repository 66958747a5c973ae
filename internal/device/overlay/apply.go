package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// apply applies patches to a tool, weakest first, and compiles its schemas. It
// quarantines a tool for which this fails.
func apply(t *ferrule.Tool, patches []Tool, pins []ferrule.Pin) {
	for _, p := range patches {
		if p.Text != "" {
			t.Text = ferrule.Clean(p.Text, ferrule.MaxText)
		}
		if p.Effect != "" {
			t.Effect = p.Effect
		}
		if p.Idempotent != nil {
			t.Idempotent = *p.Idempotent
		}
		if p.UserOnly != nil {
			t.UserOnly = *p.UserOnly
		}
		if p.Deadline > 0 {
			t.Deadline = p.Deadline
		}
		if p.Task != "" {
			t.Task = p.Task
		}
		if p.Cache != nil {
			t.Cache = p.Cache
		}
	}
	if t.Effect == "" {
		t.Effect = ferrule.Changes
	}
	if t.Quarantine == "" {
		err := compileInput(t, patches, pins)
		if err == nil {
			err = compileOutput(t)
		}
		if err != nil {
			t.Quarantine = err.Error()
		}
	}
	if t.Quarantine != "" { // its schemas are useless and may be the reason
		t.Input, t.Output = nil, nil
	}
}

// fullInput returns the complete schema of a tool's arguments in a form that is
// safe to show, or nil if there is none: the root is an object, all texts are
// clean, and it does not use x-mcp-header, which makes clients copy arguments
// into HTTP headers that are not checked.
func fullInput(raw json.RawMessage) json.RawMessage {
	doc, err := parse(raw)
	if root, ok := doc.(map[string]any); err != nil || !ok || root["type"] != "object" || !showable(doc) {
		return nil
	}
	text, err := schema.Encode(doc) // without duplicate members
	if err != nil {
		return nil
	}
	return text
}

// showable reports whether all texts in a schema are safe to show to agents.
func showable(part any) bool {
	switch part := part.(type) {
	case string:
		return ferrule.Clean(part, ferrule.MaxText) == part
	case []any:
		return !slices.ContainsFunc(part, func(e any) bool { return !showable(e) })
	case map[string]any:
		for name, value := range part {
			if name == "x-mcp-header" || !showable(name) || !showable(value) {
				return false
			}
		}
	}
	return true
}

// compileInput compiles the schema of the tool's arguments, with patches and pins
// applied. A tool without a schema takes any arguments.
func compileInput(t *ferrule.Tool, patches []Tool, pins []ferrule.Pin) error {
	raw := t.Input
	patched := slices.ContainsFunc(patches, func(p Tool) bool { return p.Input != nil || len(p.Pins) > 0 })
	if patched {
		var err error
		if raw, err = patchInput(raw, patches, pins); err != nil {
			return err
		}
	}
	if len(raw) == 0 {
		return nil
	}
	s, err := schema.Compile(raw)
	if err != nil {
		return fmt.Errorf("invalid input schema: %w", err)
	}
	t.Input, t.FullInput, t.Check = s.Portable(), fullInput(raw), s.Check
	switch { // equal tools of many Kinds share their texts
	case bytes.Equal(t.FullInput, t.Input):
		t.FullInput = nil
	case bytes.Equal(t.FullInput, s.Text()):
		t.FullInput = s.Text()
	default:
		t.FullInput = bytes.Clone(t.FullInput) // without spare capacity
	}
	return nil
}

// compileOutput compiles the schema of the tool's answers, if there is one.
// Clients reject an answer that violates it.
func compileOutput(t *ferrule.Tool) error {
	if len(t.Output) == 0 {
		return nil
	}
	s, err := schema.CompileOutput(t.Output)
	if err != nil {
		return fmt.Errorf("invalid output schema: %w", err)
	}
	t.Output, t.CheckOutput = s.Portable(), s.CheckOutput
	return nil
}

func patchInput(raw json.RawMessage, patches []Tool, pins []ferrule.Pin) (json.RawMessage, error) {
	doc, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("invalid input schema: %w", err)
	}
	for _, p := range patches {
		if p.Input != nil {
			patch, err := parse(p.Input)
			if err != nil {
				return nil, fmt.Errorf("invalid input in the overlay: %w", err)
			}
			doc = mergePatch(doc, patch)
		}
		for arg, which := range p.Pins {
			object, _ := mergePatch(doc, map[string]any{"properties": map[string]any{arg: map[string]any{}}}).(map[string]any)
			property := object["properties"].(map[string]any)[arg].(map[string]any)
			if err := limitPins(property, which, pins); err != nil {
				return nil, err
			}
			doc = object
		}
	}
	return schema.Encode(doc)
}

// limitPins limits a property to the numbers of the selected pins and lists them
// in its description. This matters because a board may keep only eight bits of a
// number and act on another pin.
func limitPins(property map[string]any, which Pins, pins []ferrule.Pin) error {
	hasAbilities := slices.ContainsFunc(pins, func(p ferrule.Pin) bool { return len(p.Abilities) > 0 })
	var numbers []any
	var names []string
	for _, p := range pins {
		if len(which.Types) > 0 && !slices.Contains(which.Types, p.Type) ||
			which.Ability != "" && hasAbilities && !slices.Contains(p.Abilities, which.Ability) {
			continue
		}
		numbers = append(numbers, p.Number)
		name := fmt.Sprint(p.Number)
		if p.Name != "" {
			name += " is " + p.Name
		}
		names = append(names, name)
	}
	if len(numbers) == 0 {
		return fmt.Errorf("the device has no pin %s", which)
	}
	property["type"] = "integer"
	property["enum"] = numbers
	text, _ := property["description"].(string)
	property["description"] = strings.TrimSpace(text + " (" + strings.Join(names, ", ") + ")")
	return nil
}

func (p Pins) String() string {
	var parts []string
	if len(p.Types) > 0 {
		parts = append(parts, "of type "+strings.Join(p.Types, " or "))
	}
	if p.Ability != "" {
		parts = append(parts, "with ability "+p.Ability)
	}
	return strings.Join(parts, " ")
}

func parse(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// mergePatch applies an RFC 7396 merge patch. It may modify target.
func mergePatch(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = make(map[string]any)
	}
	for name, change := range changes {
		if change == nil {
			delete(object, name)
		} else {
			object[name] = mergePatch(object[name], change)
		}
	}
	return object
}
