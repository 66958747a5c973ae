package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Some clients convert schemas to a form of their own, and reject the whole list of tools for
// one keyword that they do not know. The basic form has only what all of them convert: one
// type for each part, properties with required, items, minimum and maximum, texts as an
// enum, and oneOf. What it leaves out is in the descriptions, as far as a model needs it, and
// is checked when the tool is called. The basic form may accept more than the schema.

// maxBasicEnum is the limit of values that a description lists.
const maxBasicEnum = 64

// Basic returns the basic form of a portable schema of arguments. If the schema cannot be
// read, it is the one of a tool without arguments.
func Basic(portable json.RawMessage) json.RawMessage {
	object, _ := decodeObject(portable)
	out := basicObject(object, 0)
	delete(out, "description")
	if out["additionalProperties"] == true {
		delete(out, "additionalProperties") // with it, some clients see no properties
	}
	encoded, err := Encode(out)
	if err != nil { // not with values that were decoded
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return encoded
}

func decodeObject(text []byte) (map[string]any, error) {
	doc, err := decode(text, bounds{size: maxBytes, depth: maxDepth, nodes: maxNodes})
	if err != nil {
		return nil, err
	}
	object, _ := doc.(map[string]any)
	return object, nil
}

// basic converts a part of a schema. It returns nil for one that only null matches.
func basic(doc map[string]any, depth int) map[string]any {
	doc = merged(doc, depth)
	switch options := alternatives(doc, depth); {
	case len(options) == 1:
		return withText(options[0].(map[string]any), doc)
	case len(options) > 1:
		return withText(map[string]any{"oneOf": options}, doc)
	}
	switch t := basicType(doc); t {
	case "null":
		return nil
	case "object":
		return withText(basicObject(doc, depth), doc)
	case "array":
		items, _ := doc["items"].(map[string]any)
		each := basic(items, depth+1)
		if each == nil {
			each = map[string]any{"type": "string"}
		}
		return withText(map[string]any{"type": t, "items": each}, doc)
	default:
		return withText(basicValue(t, doc), doc)
	}
}

// basicObject converts an object. One without properties takes any.
func basicObject(doc map[string]any, depth int) map[string]any {
	properties, _ := doc["properties"].(map[string]any)
	out := map[string]any{"type": "object"}
	shown := make(map[string]any, len(properties))
	for name, v := range properties {
		part, _ := v.(map[string]any)
		if p := basic(part, depth+1); p != nil {
			shown[name] = p
		}
	}
	out["properties"] = shown
	var required []any
	all, _ := doc["required"].([]any)
	for _, name := range all {
		if text, ok := name.(string); ok && shown[text] != nil && !slices.Contains(required, name) {
			required = append(required, text)
		}
	}
	if required != nil {
		out["required"] = required
	}
	switch more := doc["additionalProperties"]; {
	case more == false:
		out["additionalProperties"] = false
	case len(shown) == 0:
		out["additionalProperties"] = true
	}
	return out
}

// basicValue converts a text, a number or a boolean.
func basicValue(t string, doc map[string]any) map[string]any {
	out := map[string]any{"type": t}
	values := valuesOf(t, doc)
	switch t {
	case "string":
		if len(values) > 0 {
			out["enum"] = values
		}
	case "integer", "number":
		for bound, exclusive := range map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"} {
			if n, ok := doc[bound].(json.Number); ok {
				out[bound] = n
			} else if n, ok := doc[exclusive].(json.Number); ok {
				out[bound] = n
			}
		}
		if len(values) > 0 { // numbers as an enum do not reach every model
			slices.SortFunc(values, func(a, b any) int { return rational(a).Cmp(rational(b)) })
			out["minimum"], out["maximum"] = values[0], values[len(values)-1]
		}
	}
	return out
}

// withText adds the description, and what the basic form cannot say.
func withText(out, doc map[string]any) map[string]any {
	text, _ := doc["description"].(string)
	if title, ok := doc["title"].(string); ok && text == "" {
		text = title
	}
	add := func(format string, a ...any) {
		text = strings.TrimSpace(text + " " + fmt.Sprintf(format, a...))
	}
	if t, ok := out["type"].(string); ok {
		if values := valuesOf(t, doc); len(values) > 0 {
			var names []string
			for _, v := range values[:min(len(values), maxBasicEnum)] {
				names = append(names, fmt.Sprint(v))
			}
			if len(values) > maxBasicEnum {
				names = append(names, "…")
			}
			add("One of: %s.", strings.Join(names, ", "))
		}
	}
	if step, ok := doc["multipleOf"].(json.Number); ok && out["type"] == "number" {
		add("In steps of %s.", step)
	}
	if v, ok := doc["default"]; ok {
		if encoded, err := Encode(v); err == nil && len(encoded) <= ferrule.MaxWord {
			add("Default: %s.", encoded)
		}
	}
	if text != "" {
		out["description"] = ferrule.Clean(text, ferrule.MaxText)
	}
	return out
}

// valuesOf returns the values of an enum or const that have a type.
func valuesOf(t string, doc map[string]any) (values []any) {
	all, _ := doc["enum"].([]any)
	if v, ok := doc["const"]; ok {
		all = []any{v}
	}
	for _, v := range all {
		if name := typeName(v); name == t || name == "integer" && t == "number" {
			values = append(values, v)
		}
	}
	return values
}

// basicType returns the type of a part: the one it has, or else the one that its other
// keywords are for. A part that may be anything is a text.
func basicType(doc map[string]any) string {
	if t, ok := singleType(doc["type"]); ok {
		return t
	}
	all, _ := doc["enum"].([]any)
	if v, ok := doc["const"]; ok {
		all = []any{v}
	}
	for _, v := range all {
		if v != nil {
			return typeName(v)
		}
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return doc[word] != nil })
	}
	switch {
	case doc["type"] != nil:
		return "null"
	case has("properties", "required", "minProperties", "maxProperties"):
		return "object"
	case has("items", "minItems", "maxItems"):
		return "array"
	case has("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
		return "number"
	}
	return "string"
}

// typeName returns the type of a value, in the words of a schema.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if rational(v).IsInt() {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func rational(v any) *big.Rat {
	n, _ := v.(json.Number)
	if r, ok := new(big.Rat).SetString(string(n)); ok && len(n) <= ferrule.MaxWord {
		return r
	}
	return new(big.Rat)
}

// merged returns a part with the keywords of its allOf, and of a single alternative.
func merged(doc map[string]any, depth int) map[string]any {
	if depth > maxDepth {
		return map[string]any{"type": "string"}
	}
	parts, _ := doc["allOf"].([]any)
	for _, word := range []string{"anyOf", "oneOf"} {
		if options := notNull(doc[word]); len(options) == 1 {
			parts = append(slices.Clone(parts), options[0])
		}
	}
	if len(parts) == 0 {
		return doc
	}
	out := make(map[string]any, len(doc))
	for word, v := range doc {
		out[word] = v
	}
	delete(out, "allOf")
	for _, part := range parts {
		object, _ := part.(map[string]any)
		for word, v := range merged(object, depth+1) {
			before, said := out[word]
			switch own, isMap := before.(map[string]any); {
			case !said:
				out[word] = v
			case word == "properties" && isMap:
				out[word] = together(own, v)
			case word == "required":
				list, _ := before.([]any)
				more, _ := v.([]any)
				out[word] = slices.Concat(list, more)
			}
		}
	}
	return out
}

func together(own map[string]any, more any) map[string]any {
	out := make(map[string]any, len(own))
	others, _ := more.(map[string]any)
	for name, v := range others {
		out[name] = v
	}
	for name, v := range own {
		out[name] = v
	}
	return out
}

// notNull returns the alternatives that are more than null.
func notNull(v any) (options []any) {
	list, _ := v.([]any)
	for _, option := range list {
		if object, ok := option.(map[string]any); ok && basicType(object) != "null" {
			options = append(options, option)
		}
	}
	return options
}

// alternatives returns the different basic forms of a part without a type of its own. Texts
// that are given one by one are one enum.
func alternatives(doc map[string]any, depth int) (options []any) {
	if _, typed := singleType(doc["type"]); typed {
		return nil
	}
	var seen []string
	var texts map[string]any
	for _, word := range []string{"anyOf", "oneOf"} {
		for _, option := range notNull(doc[word]) {
			shown := basic(option.(map[string]any), depth+1)
			encoded, err := Encode(shown)
			if shown == nil || err != nil || slices.Contains(seen, string(encoded)) {
				continue
			}
			seen = append(seen, string(encoded))
			if values, ok := shown["enum"].([]any); ok {
				if texts != nil {
					texts["enum"] = append(texts["enum"].([]any), values...)
					texts["description"] = texts["description"].(string) + " " + shown["description"].(string)
					continue
				}
				texts = shown
			}
			options = append(options, shown)
		}
	}
	return options
}

// Coerce returns the arguments of a call with the types that a schema wants: clients that know
// only the basic form, and their models, write 5 as "5" or as 5.0. It changes nothing that
// has another meaning, or that it cannot read.
func Coerce(schema, args json.RawMessage) json.RawMessage {
	object, err := decodeObject(schema)
	if err != nil {
		return args
	}
	values, _, err := DecodeArgs(args)
	if err != nil || !coerceObject(object, values) {
		return args
	}
	coerced, err := Encode(values)
	if err != nil {
		return args
	}
	return coerced
}

// coerceObject changes the members of an object, and reports whether it changed any.
func coerceObject(doc, values map[string]any) (changed bool) {
	properties, _ := doc["properties"].(map[string]any)
	for name, v := range values {
		part, _ := properties[name].(map[string]any)
		if is, ok := coerce(part, v); ok {
			values[name], changed = is, true
		}
	}
	return changed
}

// coerce returns a value as the type of a part of a schema. Ok is false if it stays as it is.
func coerce(doc map[string]any, v any) (is any, ok bool) {
	t, _ := doc["type"].(string)
	switch v := v.(type) {
	case map[string]any:
		return v, coerceObject(doc, v)
	case []any:
		items, _ := doc["items"].(map[string]any)
		for i := range v {
			if is, changed := coerce(items, v[i]); changed {
				v[i], ok = is, true
			}
		}
		return v, ok
	case string:
		switch {
		case t == "boolean" && (v == "true" || v == "false"):
			return v == "true", true
		case t == "number" && decimals.MatchString(v), t == "integer" && decimals.MatchString(v) && wholeNumber(v) != "":
			if whole := wholeNumber(v); whole != "" {
				v = whole
			}
			return json.Number(v), true
		}
	case json.Number:
		if whole := wholeNumber(string(v)); t == "integer" && whole != "" && whole != string(v) {
			return json.Number(whole), true
		}
	}
	return v, false
}

// decimals matches a number that is written without an exponent.
var decimals = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?$`)

// wholeNumber returns a number without its fraction, if that is zero; empty if it is not.
func wholeNumber(s string) string {
	whole, fraction, _ := strings.Cut(s, ".")
	if !decimals.MatchString(s) || strings.Trim(fraction, "0") != "" {
		return ""
	}
	return whole
}
