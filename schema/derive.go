package schema

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ferrulehq/ferrule"
)

// For derives the schema of a Go struct: names from json tags, texts from
// jsonschema tags; a field without omitempty or omitzero is required.
func For[T any]() (json.RawMessage, error) {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage]():  {}, // any JSON
		reflect.TypeFor[ferrule.Duration](): {Type: "string"},
	}})
	if err != nil {
		return nil, fmt.Errorf("deriving a schema: %w", err)
	}
	return json.Marshal(s)
}
