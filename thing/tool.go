package thing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// tool is one method of a device.
type tool struct {
	name, text string
	schema     json.RawMessage
	poll       time.Duration
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
	if err := schema.Validate(value); err != nil {
		return in, err
	}
	err = json.Unmarshal(params, &in)
	return in, err
}
