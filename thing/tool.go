package thing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// tool is one method of a device.
type tool struct {
	Description
	poll      time.Duration
	unchecked bool
	in, out   *Schema // what arguments and results are checked against; nil if they are not
	call      func(ctx context.Context, params json.RawMessage) (any, error)
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
		t.Schema = json.RawMessage(`{"type":"object","required":[],"properties":{}}`)
	}
}

// WithSchema declares arguments by a schema of one's own, which can say more than a
// Go type: bounds, choices. They are checked against it, and then read as the Go
// type says.
func WithSchema(schema json.RawMessage) ToolOption {
	return func(t *tool) { t.Schema, t.in = schema, nil }
}

// WithOutput declares the result by a schema of one's own. A result that does not
// keep to it is an error, which says that the tool has run.
func WithOutput(schema json.RawMessage) ToolOption {
	return func(t *tool) { t.Output = schema }
}

// Unchecked has arguments read as the Go type says and not looked at otherwise, as
// firmware does.
func Unchecked() ToolOption {
	return func(t *tool) { t.unchecked = true }
}

// RefusedError is the error of a tool that did not try, because of what it was
// asked.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// Tool declares a tool whose arguments and result are Go structs. Its schemas are
// derived: names from json tags, texts from jsonschema tags, and what is not
// omitempty is required. Arguments are checked before fn is called. An error is
// told to the caller, as a failure unless it is a RefusedError. A result may also be
// a text, a Picture, a Sound, a Document, or Parts.
func Tool[In, Out any](d *Device, name, text string, fn func(ctx context.Context, in In) (Out, error), options ...ToolOption) {
	t, err := newTool[In, Out](name, text, options)
	if err != nil {
		panic(fmt.Sprintf("thing: tool %s: %v", name, err))
	}
	t.call = func(ctx context.Context, params json.RawMessage) (any, error) {
		in, err := decode[In](params, t.in)
		if err != nil {
			return nil, &RefusedError{"Bad params: " + err.Error()}
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		return out, t.checkResult(out)
	}
	if builtins[name] != nil || d.toolNamed(name) != nil {
		panic(fmt.Sprintf("thing: tool %s is declared twice", name))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tools = append(d.tools, t)
}

// newTool makes a tool of what is declared.
func newTool[In, Out any](name, text string, options []ToolOption) (*tool, error) {
	in, err := SchemaOf[In]()
	if err != nil {
		return nil, err
	}
	t := &tool{Description: Description{Name: name, Text: text, Schema: in.text}, in: in}
	if isData(reflect.TypeFor[Out]()) {
		if out, err := SchemaOf[Out](); err == nil { // types that have no schema may be told all the same
			t.Output = out.text
		}
	}
	derived := t.Output
	for _, option := range options {
		option(t)
	}
	switch {
	case t.unchecked:
		t.in = nil
	case t.in == nil: // it has one of its own
		if t.in, err = ParseSchema(t.Schema); err != nil {
			return nil, err
		}
	}
	if !bytes.Equal(t.Output, derived) { // what a Go type says of itself is true
		if t.out, err = ParseSchema(t.Output); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// checkResult tells whether a result keeps to what was declared.
func (t *tool) checkResult(out any) error {
	if t.out == nil {
		return nil
	}
	value, err := json.Marshal(out)
	if err == nil {
		err = t.out.Check(value)
	}
	if err != nil {
		return fmt.Errorf("%s has run, and its result is not what it declares: %w", t.Name, err)
	}
	return nil
}

func decode[In any](params json.RawMessage, schema *Schema) (in In, err error) {
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
	if schema == nil {
		return in, nil
	}
	return in, schema.check(value)
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
