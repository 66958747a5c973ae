package schema

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// For derives the schema of a Go struct: names from json tags, texts from
// jsonschema tags; a field without omitempty or omitzero is required.
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

// anyJSON is a schema of whatever is JSON. An empty one says the same, and some
// readers take it for a mistake.
func anyJSON() *jsonschema.Schema {
	any := &jsonschema.Schema{}
	for _, t := range []string{"object", "array", "string", "number", "boolean", "null"} {
		any.AnyOf = append(any.AnyOf, &jsonschema.Schema{Type: t})
	}
	return any
}

// AnyObject is the text of some JSON object: a json.RawMessage of which For knows
// that much.
type AnyObject json.RawMessage

// MarshalJSON implements json.Marshaler.
func (o AnyObject) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (o *AnyObject) UnmarshalJSON(data []byte) error {
	return (*json.RawMessage)(o).UnmarshalJSON(data)
}
