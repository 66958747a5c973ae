package schema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// For returns the schema of a Go struct. Names come from json tags, descriptions
// from jsonschema tags. A field without omitempty or omitzero is required.
func For[T any]() (json.RawMessage, error) {
	s, err := derive[T]()
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// Derive is For and Compile in one, for arguments. It checks what can be wrong with a derived
// schema, but not against the schema of schemas, and it does not use the library's encoder: both
// take several times as long as the rest.
func Derive[T any]() (derived *Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			derived, err = nil, fmt.Errorf("deriving a schema: %v", r)
		}
	}()
	from, err := derive[T]()
	if err != nil {
		return nil, err
	}
	var d documents
	doc, ok := d.of(from).(map[string]any)
	if !ok {
		return nil, errors.New("must be derived from a struct")
	}
	nodes := 0
	if err := cmp.Or(d.err, bounded(doc, maxDepth, &nodes, maxNodes)); err != nil {
		return nil, err
	}
	inlined, _, err := inline(doc, false)
	if err == nil {
		err = checkRoot(inlined)
	}
	if err != nil {
		return nil, err
	}
	raw, err := Encode(doc)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxSize {
		return nil, fmt.Errorf("has %d bytes; limit is %d", len(raw), maxSize)
	}
	return newSchema(raw, portableRoot(inlined))
}

func derive[T any]() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage]():  anyJSON(),
		reflect.TypeFor[AnyObject]():        {Type: "object"},
		reflect.TypeFor[ferrule.Duration](): {Type: "string"},
	}})
	if err != nil {
		return nil, fmt.Errorf("deriving a schema: %w", err)
	}
	return s, nil
}

// documents converts derived schemas to decoded JSON.
type documents struct{ err error }

// of returns a derived schema as decoded JSON: an object, true if everything matches, or false if
// nothing does. It knows all keywords that are derived from Go types.
func (d *documents) of(s *jsonschema.Schema) any {
	if s.Not != nil { // derived only for what must not be there
		return false
	}
	doc := make(map[string]any)
	if s.Type != "" {
		doc["type"] = s.Type
	} else if len(s.Types) > 0 {
		doc["type"] = anyList(s.Types, func(name string) any { return name })
	}
	if s.Description != "" {
		doc["description"] = s.Description
	}
	if s.Minimum != nil {
		doc["minimum"] = *s.Minimum
	}
	if s.Maximum != nil {
		doc["maximum"] = *s.Maximum
	}
	if s.MinItems != nil {
		doc["minItems"] = *s.MinItems
	}
	if s.MaxItems != nil {
		doc["maxItems"] = *s.MaxItems
	}
	if s.Items != nil {
		doc["items"] = d.of(s.Items)
	}
	if len(s.Required) > 0 {
		if names := slices.Sorted(slices.Values(s.Required)); len(slices.Compact(names)) < len(s.Required) {
			d.err = errors.New("two fields have the same name")
		}
		doc["required"] = anyList(s.Required, func(name string) any { return name })
	}
	if len(s.AnyOf) > 0 {
		doc["anyOf"] = anyList(s.AnyOf, d.of)
	}
	if len(s.Properties) > 0 {
		properties := make(map[string]any, len(s.Properties))
		for name, property := range s.Properties {
			properties[name] = d.of(property)
		}
		doc["properties"] = properties
	}
	if s.AdditionalProperties != nil {
		doc["additionalProperties"] = d.of(s.AdditionalProperties)
	}
	if len(doc) == 0 {
		return true
	}
	return doc
}

func anyList[T any](of []T, convert func(T) any) []any {
	converted := make([]any, len(of))
	for i, v := range of {
		converted[i] = convert(v)
	}
	return converted
}

// anyJSON returns a schema that matches every value. An empty schema would do the
// same, but some clients reject it.
func anyJSON() *jsonschema.Schema {
	any := &jsonschema.Schema{}
	for _, t := range []string{"object", "array", "string", "number", "boolean", "null"} {
		any.AnyOf = append(any.AnyOf, &jsonschema.Schema{Type: t})
	}
	return any
}

// AnyObject is a json.RawMessage that For describes as an object.
type AnyObject json.RawMessage

// MarshalJSON implements json.Marshaler.
func (o AnyObject) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (o *AnyObject) UnmarshalJSON(data []byte) error {
	return (*json.RawMessage)(o).UnmarshalJSON(data)
}
