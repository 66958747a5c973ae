package entity

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// property is one argument of a tool.
type property struct {
	name             string
	optional, hidden bool
	schema           map[string]any
}

// object returns the schema of arguments. Others than these are refused.
func object(properties ...property) json.RawMessage {
	schema := map[string]any{"type": "object", "additionalProperties": false}
	all, required := map[string]any{}, []string{}
	for _, p := range properties {
		all[p.name] = p.schema
		if !p.optional {
			required = append(required, p.name)
		}
	}
	schema["properties"] = all
	if len(required) > 0 {
		schema["required"] = required
	}
	text, err := json.Marshal(schema) // sorted by name, so that equal devices have equal ones
	if err != nil {
		return nil // all values come from the functions below
	}
	return text
}

// opt returns the property as an optional one.
func (p property) opt() property {
	p.optional = true
	return p
}

// describe adds a description.
func (p property) describe(text string) property {
	if text != "" {
		p.schema["description"] = text
	}
	return p
}

func boolArg(name, text string) property {
	return property{name: name, schema: map[string]any{"type": "boolean"}}.describe(text)
}

// numberArg returns a number in a range. A step of 0 allows any.
func numberArg(name, text string, low, high, step float64) property {
	schema := map[string]any{"type": "number", "minimum": low, "maximum": high}
	switch {
	case step == 1 && low == math.Trunc(low):
		schema["type"] = "integer"
	case step > 0 && multiple(low, step): // JSON Schema counts steps from 0
		schema["multipleOf"] = step
	case step > 0:
		text = strings.TrimSpace(text + fmt.Sprintf(" Steps of %s from %s.", formatNumber(step), formatNumber(low)))
	}
	return property{name: name, schema: schema}.describe(text)
}

// multiple reports whether n is a multiple of step, but for the error of binary fractions.
func multiple(n, step float64) bool {
	q := n / step
	return math.Abs(q-math.Round(q)) < 1e-6
}

// enumArg returns a choice.
func enumArg(name, text string, options []string) property {
	return property{name: name, schema: map[string]any{"type": "string", "enum": options}}.describe(text)
}

// textArg returns a text of some length. The pattern may be empty; it is one of Python,
// which compares it with the beginning of the text.
func textArg(name, text string, least, most int, pattern string) property {
	schema := map[string]any{"type": "string", "maxLength": most}
	if least > 0 {
		schema["minLength"] = least
	}
	if pattern != "" {
		schema["pattern"] = "^(?:" + pattern + ")"
	}
	return property{name: name, schema: schema}.describe(text)
}

// secret marks the value as one that no log may have.
func (p property) secret() property {
	p.hidden = true
	return p
}
