package thing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// tool is a declared tool.
type tool struct {
	Description
	unchecked bool
	in, out   *Schema // for checking arguments and results; nil for no check
	call      func(ctx context.Context, params json.RawMessage) (any, error)
}

// ToolOption is an option of Tool.
type ToolOption func(*tool)

// Polled asks the gateway to call the tool at an interval and to record its numbers.
func Polled(interval time.Duration) ToolOption {
	return func(t *tool) { t.Poll = interval }
}

// NoSchema declares no arguments, as firmware does. The description has to explain them.
func NoSchema() ToolOption {
	return func(t *tool) {
		t.Schema = json.RawMessage(`{"type":"object","required":[],"properties":{}}`)
	}
}

// WithSchema replaces the derived schema of the arguments. It can say more than a Go type, for
// example limits and choices. Arguments are checked against it and then decoded.
func WithSchema(schema json.RawMessage) ToolOption {
	return func(t *tool) { t.Schema, t.in = schema, nil }
}

// WithOutput replaces the derived schema of the result. A result that does not match is an
// error that says that the tool has run.
func WithOutput(schema json.RawMessage) ToolOption {
	return func(t *tool) { t.Output = schema }
}

// Unchecked disables the check of arguments; they are only decoded, as firmware does.
func Unchecked() ToolOption {
	return func(t *tool) { t.unchecked = true }
}

// RefusedError is the error of a tool that has done nothing, for example because of its
// arguments. The gateway then tells the caller that nothing was changed.
type RefusedError struct {
	Reason string
	// Arguments says what is wrong with each argument, if they are the reason.
	Arguments []string
}

func (e *RefusedError) Error() string { return e.Reason }

// badArguments is the error of a call with wrong arguments.
func badArguments(wrong []string) *RefusedError {
	return &RefusedError{Reason: "Bad params: " + strings.Join(wrong, "; "), Arguments: wrong}
}

// Tool declares a tool with the types of its arguments and its result. The text describes it to
// agents. Schemas are derived: names from json tags, descriptions from jsonschema tags, and a
// field without omitempty is required. Arguments are checked before fn is called. Other struct
// tags are errors, except those of other encodings such as yaml: give limits with [WithSchema].
//
// An error is a failure after which something may have changed, unless it is a [RefusedError].
// A result may also be a string, an [Image], [Audio], a [Document], or [Parts].
//
// Tool panics if a schema is invalid or the name is taken, because that is a mistake in the
// program.
func Tool[In, Out any](d *Device, name, text string, fn func(ctx context.Context, in In) (Out, error), options ...ToolOption) {
	t, err := newTool[In, Out](name, text, options)
	if err != nil {
		panic(fmt.Sprintf("thing: tool %s: %v", name, err))
	}
	t.call = func(ctx context.Context, params json.RawMessage) (any, error) {
		in, wrong := decode[In](params, t.in)
		if wrong != nil {
			return nil, badArguments(wrong)
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		return out, t.checkResult(out)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if builtins[name] != nil || d.find(name) != nil {
		panic(fmt.Sprintf("thing: tool %s is declared twice", name))
	}
	d.tools = append(d.tools, t)
}

// Remove removes tools, for example because their hardware was unplugged. Unknown names are
// ignored. A running call goes on. Servers that notify their callers offer a method for that,
// such as Refresh of thing/mcpserver.
func (d *Device) Remove(names ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Clones share the list.
	d.tools = slices.DeleteFunc(slices.Clone(d.tools), func(t *tool) bool { return slices.Contains(names, t.Name) })
}

// newTool returns a tool with its schemas and options.
func newTool[In, Out any](name, text string, options []ToolOption) (*tool, error) {
	in, err := SchemaOf[In]()
	if err != nil {
		return nil, err
	}
	t := &tool{Description: Description{Name: name, Text: text, Schema: in.text}, in: in}
	if err := checkTags(reflect.TypeFor[Out]()); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if isData(reflect.TypeFor[Out]()) {
		if out, err := SchemaOf[Out](); err == nil { // a type without a schema has no output schema
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
	case t.in == nil: // replaced by an option
		if t.in, err = ParseSchema(t.Schema); err != nil {
			return nil, err
		}
	}
	if !bytes.Equal(t.Output, derived) { // a derived schema always matches
		if t.out, err = ParseSchema(t.Output); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// checkResult returns an error if a result does not match the declared schema.
func (t *tool) checkResult(out any) error {
	if t.out == nil {
		return nil
	}
	value, err := json.Marshal(out)
	if err == nil {
		err = t.out.Check(value)
	}
	if err != nil {
		return fmt.Errorf("%s has run, but its result does not match its schema: %w", t.Name, err)
	}
	return nil
}

// decode returns the arguments of a call, or everything that is wrong with them.
func decode[In any](params json.RawMessage, schema *Schema) (in In, wrong []string) {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	var value map[string]any
	if err := json.Unmarshal(params, &value); err != nil {
		return in, []string{"must be an object"}
	}
	all := make(map[string]string)
	if schema != nil {
		all = schema.violations(value)
	}
	// The type knows more than the schema, for example the range of an integer.
	if err := json.Unmarshal(params, &in); err != nil {
		types := wrongTypes[In](params)
		if len(types) == 0 {
			types[""] = wrongType("argument", err)
		}
		delete(all, "") // it says the same in other words
		maps.Copy(all, types)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		wrong = append(wrong, all[name])
	}
	return in, wrong
}

// wrongTypes returns which arguments have the wrong type. It decodes each alone, since
// encoding/json reports only the first.
func wrongTypes[In any](params json.RawMessage) map[string]string {
	wrong := make(map[string]string)
	var members map[string]json.RawMessage
	if json.Unmarshal(params, &members) != nil {
		return wrong
	}
	for name, value := range members {
		alone, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err == nil {
			err = json.Unmarshal(alone, new(In))
		}
		if err != nil {
			wrong[name] = wrongType(name, err)
		}
	}
	return wrong
}

// jsonTypes translates the words of encoding/json. Numbers are usually given as such.
var jsonTypes = map[string]string{
	"string": "a string", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object",
}

// wrongType says which argument has the wrong type, or which part of it.
func wrongType(name string, err error) string {
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) {
		return name + " is invalid: " + err.Error()
	}
	got, ok := strings.CutPrefix(e.Value, "number ")
	if !ok {
		got = cmp.Or(jsonTypes[e.Value], e.Value)
	}
	return fmt.Sprintf("%s must be %s, got %s", cmp.Or(e.Field, name), expected(e.Type, got), got)
}

// expected describes the values of a Go type, for an integer with its range.
func expected(t reflect.Type, got string) string {
	integer := strings.Trim(got, "-0123456789") == ""
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if maximum := uint64(1)<<(t.Bits()-1) - 1; integer {
			return fmt.Sprintf("an integer between -%d and %d", maximum+1, maximum)
		}
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if integer {
			return fmt.Sprintf("an integer between 0 and %d", ^uint64(0)>>(64-t.Bits()))
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
