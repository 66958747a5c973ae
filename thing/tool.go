package thing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// tool is one method of a device.
type tool struct {
	name, text string
	schema     json.RawMessage
	poll       time.Duration
	userOnly   bool
	call       func(ctx context.Context, params json.RawMessage) (any, error)
}

// ToolOption adds to what a tool declares.
type ToolOption func(*tool)

// Polled asks to be called at an interval.
func Polled(interval time.Duration) ToolOption {
	return func(t *tool) { t.poll = interval }
}

// NoSchema declares arguments in words only, as firmware does.
func NoSchema() ToolOption {
	return func(t *tool) {
		t.schema = json.RawMessage(`{"type":"object","required":[],"properties":{}}`)
	}
}

// WithSchema declares arguments by a schema of one's own. They are still read as
// the Go type says.
func WithSchema(schema json.RawMessage) ToolOption {
	return func(t *tool) { t.schema = schema }
}

// RefusedError is the error of a tool that did not try, because of what it was
// asked.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// Tool declares a tool whose arguments and result are Go structs. Its schema is
// derived: names from json tags, texts from jsonschema tags, and what is not
// omitempty is required. Arguments are checked before fn is called. An error is
// told to the caller, as a failure unless it is a RefusedError.
func Tool[In, Out any](d *Device, name, text string, fn func(ctx context.Context, in In) (Out, error), options ...ToolOption) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(fmt.Sprintf("thing: tool %s: %v", name, err))
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		panic(fmt.Sprintf("thing: tool %s: %v", name, err))
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		panic(fmt.Sprintf("thing: tool %s: %v", name, err))
	}
	t := &tool{name: name, text: text, schema: raw}
	t.call = func(ctx context.Context, params json.RawMessage) (any, error) {
		in, err := decode[In](params, resolved)
		if err != nil {
			return nil, &RefusedError{"Bad params: " + err.Error()}
		}
		return fn(ctx, in)
	}
	for _, option := range options {
		option(t)
	}
	if builtins[name] != nil || d.toolNamed(name) != nil {
		panic(fmt.Sprintf("thing: tool %s is declared twice", name))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tools = append(d.tools, t)
}

func decode[In any](params json.RawMessage, schema *jsonschema.Resolved) (in In, err error) {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	var value map[string]any
	if err := json.Unmarshal(params, &value); err != nil {
		return in, errors.New("they are not an object")
	}
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(params, &in); errors.As(err, &wrong) {
		return in, wrongType(wrong)
	} else if err != nil {
		return in, err
	}
	if err := schema.Validate(value); err != nil {
		return in, errors.New(strings.TrimPrefix(err.Error(), "validating root: "))
	}
	return in, nil
}

// given names what came, by the words of encoding/json. Numbers are told as they
// came, most of the time.
var given = map[string]string{
	"string": "a string", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object",
}

// wrongType says in plain words which argument has the wrong type.
func wrongType(e *json.UnmarshalTypeError) error {
	got, ok := strings.CutPrefix(e.Value, "number ")
	if !ok {
		got = cmp.Or(given[e.Value], e.Value)
	}
	return fmt.Errorf("%s: want %s, got %s", cmp.Or(e.Field, "an argument"), wanted(e.Type, got), got)
}

// wanted says what belongs into a Go type. Who gave an integer is told the bounds.
func wanted(t reflect.Type, got string) string {
	integer := strings.Trim(got, "-0123456789") == ""
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if most := uint64(1)<<(t.Bits()-1) - 1; integer {
			return fmt.Sprintf("an integer from -%d to %d", most+1, most)
		}
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if integer {
			return fmt.Sprintf("an integer from 0 to %d", ^uint64(0)>>(64-t.Bits()))
		}
		return "an integer"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return "an object"
}
