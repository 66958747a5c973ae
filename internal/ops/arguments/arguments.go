// Package arguments shows the arguments of a tool to people, and reads what they type.
package arguments

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Property is the schema of an argument.
type Property struct {
	Type        typeNames         `json:"type"`
	AnyOf       []Property        `json:"anyOf"`
	OneOf       []Property        `json:"oneOf"`
	Description string            `json:"description"`
	Minimum     *json.Number      `json:"minimum"`
	Maximum     *json.Number      `json:"maximum"`
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
	// Properties are those of an object.
	Properties map[string]json.RawMessage `json:"properties"`
}

// typeNames are the types of a value: a schema has one name or a list.
type typeNames []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *typeNames) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = typeNames{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// types returns the types that a property declares itself or as alternatives.
func (p Property) types() (all []string) {
	all = append(all, p.Type...)
	for _, other := range slices.Concat(p.AnyOf, p.OneOf) {
		all = append(all, other.Type...)
	}
	return all
}

// allows reports whether a text is one of the values that a property lists.
func (p Property) allows(text string) bool {
	return slices.ContainsFunc(p.Enum, func(raw json.RawMessage) bool {
		var value string
		return json.Unmarshal(raw, &value) == nil && value == text
	})
}

// bounds describes the values of an argument in a few words.
func (p Property) bounds() string {
	var words string
	if len(p.Enum) > 0 {
		var each []string
		for _, v := range p.Enum {
			each = append(each, string(v))
		}
		words += " " + strings.Join(each, " or ")
	}
	switch {
	case p.Minimum != nil && p.Maximum != nil:
		words += fmt.Sprintf(" from %s to %s", p.Minimum, p.Maximum)
	case p.Minimum != nil:
		words += fmt.Sprintf(" from %s", p.Minimum)
	case p.Maximum != nil:
		words += fmt.Sprintf(" up to %s", p.Maximum)
	}
	if p.Default != nil {
		words += " (default " + string(p.Default) + ")"
	}
	return words
}

// Input is the schema of a tool's arguments.
type Input struct {
	Properties map[string]Property `json:"properties"`
	Required   []string            `json:"required"`
	More       any                 `json:"additionalProperties"` // false if no others are allowed
}

// ParseInput decodes a schema. Without one, the Input is empty.
func ParseInput(schema json.RawMessage) (in Input) {
	json.Unmarshal(schema, &in)
	return in
}

// Describe describes the arguments of a tool, one per line.
func Describe(schema json.RawMessage) []string {
	in := ParseInput(schema)
	if len(in.Properties) == 0 && in.More != false {
		return []string{"declares no arguments; see the description"}
	}
	var lines []string
	for name, p := range in.Properties {
		line := name
		if types := p.types(); len(types) > 0 {
			line += ": " + strings.Join(types, " or ")
		}
		if len(p.Properties) > 0 {
			line += " of " + ferrule.OneLine(strings.Join(slices.Sorted(maps.Keys(p.Properties)), ", "), 120)
		}
		if bounds := ferrule.OneLine(p.bounds(), 120); bounds != "" {
			line += " " + bounds
		}
		if !slices.Contains(in.Required, name) {
			line += ", optional"
		}
		if p.Description != "" {
			line += ", " + ferrule.OneLine(p.Description, 120)
		}
		lines = append(lines, ferrule.Clean(line, ferrule.MaxText))
	}
	slices.Sort(lines)
	return lines
}

// Parse builds the arguments of a call from key=value and key:=json, with the types
// of the tool's schema. A value of the wrong type is sent as text, so that the gateway
// reports all mistakes at once.
func Parse(words []string, schema json.RawMessage) (json.RawMessage, error) {
	declared := ParseInput(schema).Properties
	args := make(map[string]any, len(words))
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		name, isJSON := strings.CutSuffix(key, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("argument %q: must be key=value or key:=json", word)
		}
		if _, twice := args[name]; twice {
			return nil, fmt.Errorf("argument %q is given twice", name)
		}
		if !isJSON {
			if err := declared[name].checkJSON(name, value); err != nil {
				return nil, err
			}
			args[name] = declared[name].convert(value)
			continue
		}
		if !json.Valid([]byte(value)) {
			return nil, fmt.Errorf("argument %q: the value after := is not JSON; quote texts: %s:='\"…\"'", name, name)
		}
		args[name] = json.RawMessage(value)
	}
	return json.Marshal(args)
}

// checkJSON returns what is wrong with a value that must be a list or an object, and looks like
// one. The gateway would only see a text.
func (p Property) checkJSON(name, text string) error {
	types := p.types()
	list, object := slices.Contains(types, "array"), slices.Contains(types, "object")
	text = strings.TrimSpace(text)
	if slices.Contains(types, "string") || !list && !object || !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "{") {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return fmt.Errorf("argument %q is not valid JSON: %w; put it in single quotes, so that the shell does not change it", name, err)
	}
	if _, ok := v.(map[string]any); ok && !object {
		return fmt.Errorf("argument %q must be a list: put the object in [ ], such as %s='[{…}]'", name, name)
	}
	return nil
}

// convert converts a text to a type that the property declares, if it can. Without a
// declared type, numbers and booleans are what they look like, and quotes make a text.
func (p Property) convert(text string) any {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	types := p.types()
	if len(types) == 0 && !p.allows(text) {
		switch v := v.(type) {
		case float64, bool:
			return json.RawMessage(text)
		case string:
			return v
		}
	}
	if slices.ContainsFunc(types, func(want string) bool { return isA(v, want) }) {
		return json.RawMessage(text)
	}
	return text
}

// isA reports whether a JSON value has a type.
func isA(v any, want string) bool {
	switch v.(type) {
	case float64:
		return want == "number" || want == "integer"
	case bool:
		return want == "boolean"
	case []any:
		return want == "array"
	case map[string]any:
		return want == "object"
	case nil:
		return want == "null"
	}
	return false
}
