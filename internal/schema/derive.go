package schema

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// For returns the schema of a Go struct. Names come from json tags, descriptions
// from jsonschema tags. A field without omitempty or omitzero is required.
func For[T any]() (json.RawMessage, error) {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage]():  anyJSON(),
		reflect.TypeFor[AnyObject]():        {Type: "object"},
		reflect.TypeFor[ferrule.Duration](): {Type: "string"},
	}})
	if err != nil {
		return nil, fmt.Errorf("deriving a schema: %w", err)
	}
	return json.Marshal(s)
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
