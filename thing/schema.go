package thing

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema is a JSON Schema for checking values.
type Schema struct {
	text  json.RawMessage
	root  *jsonschema.Schema
	rules *jsonschema.Resolved
	parts map[string]*jsonschema.Resolved // the rules of each property alone
}

// SchemaOf derives the schema of a Go type: names from json tags, descriptions from jsonschema
// tags, and a field without omitempty is required. A struct tag that has no meaning here is an
// error, because it may be meant as a description or a limit.
func SchemaOf[T any]() (*Schema, error) {
	if err := checkTags(reflect.TypeFor[T]()); err != nil {
		return nil, err
	}
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
	s := &Schema{text: text, root: schema, rules: rules, parts: make(map[string]*jsonschema.Resolved)}
	for name, property := range schema.Properties {
		alone := &jsonschema.Schema{
			Schema: schema.Schema, Defs: schema.Defs, Definitions: schema.Definitions,
			Properties: map[string]*jsonschema.Schema{name: property},
		}
		if part, err := alone.Resolve(nil); err == nil { // else it refers to another property
			s.parts[name] = part
		}
	}
	return s, nil
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
		return errors.New(reason(err))
	}
	return nil
}

// reason returns an error of the library without the places in the schema.
func reason(err error) string {
	text := err.Error()
	for {
		place, rest, ok := strings.Cut(text, ": ")
		if !ok || !strings.HasPrefix(place, "validating ") {
			return text
		}
		text = rest
	}
}

// violations returns what is wrong with each argument, by its name.
func (s *Schema) violations(arguments map[string]any) map[string]string {
	wrong := make(map[string]string)
	whole := s.check(arguments)
	if whole == nil {
		return wrong
	}
	for _, name := range s.root.Required {
		if _, given := arguments[name]; !given {
			wrong[name] = name + " is missing"
		}
	}
	for name, value := range arguments {
		part, property := s.parts[name], s.root.Properties[name]
		switch {
		case property == nil && s.closed():
			wrong[name] = name + " is unknown"
		case part != nil:
			if err := part.Validate(map[string]any{name: value}); err != nil {
				wrong[name] = name + " " + violation(property, value, err)
			}
		}
	}
	if len(wrong) == 0 { // several arguments do not fit together
		wrong[""] = whole.Error()
	}
	return wrong
}

// closed reports whether other properties than those named are forbidden.
func (s *Schema) closed() bool {
	more := s.root.AdditionalProperties
	return more != nil && more.Not != nil && reflect.ValueOf(*more.Not).IsZero() && len(s.root.PatternProperties) == 0
}

// violation says how a value violates the schema of an argument. Err is the words of the
// library, which are used for uncommon keywords.
func violation(property *jsonschema.Schema, value any, err error) string {
	number, isNumber := value.(float64)
	switch {
	case isNumber && property.Minimum != nil && number < *property.Minimum:
		return fmt.Sprintf("must be at least %v, got %v", *property.Minimum, number)
	case isNumber && property.Maximum != nil && number > *property.Maximum:
		return fmt.Sprintf("must be at most %v, got %v", *property.Maximum, number)
	case strings.HasPrefix(reason(err), "enum: "):
		return fmt.Sprintf("must be one of %v, got %v", property.Enum, value)
	}
	return "is invalid: " + reason(err)
}
