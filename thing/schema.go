package thing

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema is a JSON Schema for checking values.
type Schema struct {
	text  json.RawMessage
	rules *jsonschema.Resolved
}

// SchemaOf derives the schema of a Go type: names from json tags, descriptions from jsonschema
// tags, and a field without omitempty is required.
func SchemaOf[T any]() (*Schema, error) {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	return resolve(schema, text)
}

// ParseSchema parses a schema. A reference to another document is an error: nothing is fetched.
func ParseSchema(text json.RawMessage) (*Schema, error) {
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal(text, schema); err != nil {
		return nil, fmt.Errorf("parsing the schema: %w", err)
	}
	return resolve(schema, text)
}

func resolve(schema *jsonschema.Schema, text json.RawMessage) (*Schema, error) {
	rules, err := schema.Resolve(nil)
	if err != nil {
		return nil, err
	}
	return &Schema{text, rules}, nil
}

// MarshalJSON returns the schema as it was given.
func (s *Schema) MarshalJSON() ([]byte, error) { return s.text, nil }

// Check returns an error if a value does not match.
func (s *Schema) Check(value json.RawMessage) error {
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	return s.check(v)
}

func (s *Schema) check(value any) error {
	if err := s.rules.Validate(value); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "validating root: "))
	}
	return nil
}
