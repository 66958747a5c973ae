package schema

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// For derives the schema of a Go struct: names from json tags, texts from
// jsonschema tags; a field without omitempty or omitzero is required.
func For[T any]() (json.RawMessage, error) {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, fmt.Errorf("deriving a schema: %w", err)
	}
	return json.Marshal(s)
}
