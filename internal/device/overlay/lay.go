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

// lay puts on a tool what is said about it, and makes it ready to be called. A
// tool for which that cannot be done is quarantined.
func lay(t *ferrule.Tool, says []Tool, pins []ferrule.Pin) {
	for _, say := range says {
		if say.Text != "" {
			t.Text = ferrule.Clean(say.Text, ferrule.MaxText)
		}
		if say.Effect != "" {
			t.Effect = say.Effect
		}
		if say.Idempotent != nil {
			t.Idempotent = *say.Idempotent
		}
		if say.UserOnly != nil {
			t.UserOnly = *say.UserOnly
		}
		if say.Deadline > 0 {
			t.Deadline = say.Deadline
		}
		if say.Cache != nil {
			t.Cache = say.Cache
		}
	}
	if t.Effect == "" {
		t.Effect = ferrule.Changes
	}
	if t.Quarantine == "" {
		err := layInput(t, says, pins)
		if err == nil {
			err = layOutput(t)
		}
		if err != nil {
			t.Quarantine = err.Error()
		}
	}
	if t.Quarantine != "" { // nobody has a use for its schemas, and they may be the reason
		t.Input, t.Output = nil, nil
	}
}

// whole is a schema as who wants to see all of it may: one of an object whose texts are as
// they would be shown elsewhere, without the word by which a client would put arguments into
// headers, which nobody looks at.
func whole(raw json.RawMessage) json.RawMessage {
	doc, err := parse(raw)
	if root, ok := doc.(map[string]any); err != nil || !ok || root["type"] != "object" || !showable(doc) {
		return nil
	}
	text, err := schema.Encode(doc) // which cannot be read in two ways
	if err != nil {
		return nil
	}
	return text
}

// showable tells whether all texts in a schema are such as are shown to agents.
func showable(part any) bool {
	switch part := part.(type) {
	case string:
		return ferrule.Clean(part, ferrule.MaxText) == part
	case []any:
		return !slices.ContainsFunc(part, func(below any) bool { return !showable(below) })
	case map[string]any:
		for word, below := range part {
			if word == "x-mcp-header" || !showable(word) || !showable(below) {
				return false
			}
		}
	}
	return true
}

// layInput compiles the schema of the tool's arguments, with the patches and
// pins that are laid on it. A tool of which nothing is known takes anything.
func layInput(t *ferrule.Tool, says []Tool, pins []ferrule.Pin) error {
	raw := t.Input
	patched := slices.ContainsFunc(says, func(s Tool) bool { return s.Input != nil || len(s.Pins) > 0 })
	if patched {
		var err error
		if raw, err = patchInput(raw, says, pins); err != nil {
			return err
		}
	}
	if len(raw) == 0 {
		return nil
	}
	s, err := schema.Compile(raw)
	if err != nil {
		return fmt.Errorf("its input schema cannot be used: %w", err)
	}
	t.Input, t.FullInput, t.Check = s.Portable(), whole(raw), s.Check
	return nil
}

// layOutput compiles the schema of the tool's answers, if there is one. Clients
// refuse an answer that does not fit it.
func layOutput(t *ferrule.Tool) error {
	if len(t.Output) == 0 {
		return nil
	}
	s, err := schema.CompileOutput(t.Output)
	if err != nil {
		return fmt.Errorf("its output schema cannot be used: %w", err)
	}
	t.Output, t.CheckOutput = s.Portable(), func(value json.RawMessage) []string { return s.CheckOutput(value) }
	return nil
}

func patchInput(raw json.RawMessage, says []Tool, pins []ferrule.Pin) (json.RawMessage, error) {
	doc, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("its input schema cannot be used: %w", err)
	}
	for _, say := range says {
		if say.Input != nil {
			patch, err := parse(say.Input)
			if err != nil {
				return nil, fmt.Errorf("the overlay's input: %w", err)
			}
			doc = mergePatch(doc, patch)
		}
		for arg, which := range say.Pins {
			object, _ := mergePatch(doc, map[string]any{"properties": map[string]any{arg: map[string]any{}}}).(map[string]any)
			property := object["properties"].(map[string]any)[arg].(map[string]any)
			if err := limit(property, which, pins); err != nil {
				return nil, err
			}
			doc = object
		}
	}
	return schema.Encode(doc)
}

// limit lets a property be the number of one of the chosen pins, and tells
// which they are. The board itself may take any number and act on another pin:
// it keeps eight bits of it.
func limit(property map[string]any, which Pins, pins []ferrule.Pin) error {
	told := slices.ContainsFunc(pins, func(p ferrule.Pin) bool { return len(p.Abilities) > 0 })
	var numbers []any
	var names []string
	for _, p := range pins {
		if len(which.Types) > 0 && !slices.Contains(which.Types, p.Type) ||
			which.Ability != "" && told && !slices.Contains(p.Abilities, which.Ability) {
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

// mergePatch applies an RFC 7396 merge patch. It may change target.
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
