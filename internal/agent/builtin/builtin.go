// Package builtin has the gateway's own tools, written as Go functions from struct to
// struct. They are offered as the tools of one more device, [ferrule.GatewayID], and
// calls to them pass the same pipeline.
//
//	Typed(name, text, effect, func(ctx, call, In) (Out, error))    ─▶ Tool
//	Shown(name, text, effect, func(ctx, call, In) (Result, error)) ─▶ Tool
//	New(version, tools…) ─▶ Set ─▶ Device, Manifest, Handle
//
// One file has one tool, or a few that belong together. Models read the descriptions:
// they say what a tool returns. docs/how-to/add-a-builtin-tool.md shows how to add one.
package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// See returns what a caller is shown. If it is nil, everybody is shown everything.
type See func(who ferrule.Principal) ferrule.Visibility

// of returns what the caller is shown.
func (s See) of(call *ferrule.Call) ferrule.Visibility {
	if s == nil {
		return ferrule.Visibility{}
	}
	return s(call.Principal)
}

// device reports whether the caller may know a device.
func (s See) device(call *ferrule.Call, dev *ferrule.Device, m *ferrule.Manifest) bool {
	return call.Principal.CanSee(dev) && s.of(call).Device(dev, m)
}

// Tool is one built-in tool.
type Tool struct {
	tool ferrule.Tool
	call func(ctx context.Context, call *ferrule.Call) (any, error)
	// input and output derive its schemas; output is nil if it has none.
	input, output func() (*schema.Schema, error)
}

// Typed returns a tool that calls a function. Its schemas are derived from In and Out:
// names from json tags, descriptions from jsonschema tags; fields without omitempty are
// required. The function gets valid arguments. It should return a *ferrule.Error; other
// errors are reported as faults of the gateway.
func Typed[In, Out any](name, text string, effect ferrule.Effect, fn func(ctx context.Context, call *ferrule.Call, in In) (Out, error)) Tool {
	return Tool{
		tool:  ferrule.Tool{Name: name, Text: text, Effect: effect},
		input: schema.Derive[In], output: schema.Derive[Out],
		call: func(ctx context.Context, call *ferrule.Call) (any, error) {
			var in In
			if err := json.Unmarshal(call.Args, &in); err != nil {
				return nil, ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s: %s%w", name, wrongArgument[In](call.Args), err).WithHint("to see what it takes, run `ferrule tools %s`", ferrule.GatewayID)
			}
			return fn(ctx, call, in)
		},
	}
}

// wrongArgument returns the path of the argument that cannot be decoded and a space, such as
// "when.for ", or "". The error of a type that decodes itself, such as a duration, does not have
// it.
func wrongArgument[In any](args json.RawMessage) string {
	path := wrongPath(args, func(part any) bool {
		var in In
		data, err := json.Marshal(part)
		return err == nil && json.Unmarshal(data, &in) != nil
	})
	if path == "" {
		return ""
	}
	return ferrule.Clean(strings.TrimPrefix(path, "."), ferrule.MaxToolName) + " "
}

// wrongPath returns the path to the innermost part of a value that fails without the others.
func wrongPath(value json.RawMessage, fails func(part any) bool) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) == nil && !fails(struct{}{}) { // else it must not be an object
		for _, name := range slices.Sorted(maps.Keys(members)) {
			inside := func(part any) bool { return fails(map[string]any{name: part}) }
			if inside(members[name]) {
				return "." + name + wrongPath(members[name], inside)
			}
		}
	}
	var elements []json.RawMessage
	if json.Unmarshal(value, &elements) == nil && !fails([]any{}) {
		for i, element := range elements {
			inside := func(part any) bool { return fails([]any{part}) }
			if inside(element) {
				return fmt.Sprintf("[%d]", i) + wrongPath(element, inside)
			}
		}
	}
	return ""
}

// Shown returns a tool whose result is content, such as an image, without a schema.
func Shown[In any](name, text string, effect ferrule.Effect, fn func(ctx context.Context, call *ferrule.Call, in In) (*ferrule.Result, error)) Tool {
	return Typed(name, text, effect, fn).Undescribed()
}

// Undescribed returns the tool without the schema of its result: tools that are always
// listed should be short.
func (t Tool) Undescribed() Tool {
	t.output = nil
	return t
}

// ForPeople returns the tool, offered to people only.
func (t Tool) ForPeople() Tool {
	t.tool.UserOnly = true
	return t
}

// WithDeadline returns the tool with its own deadline.
func (t Tool) WithDeadline(deadline time.Duration) Tool {
	t.tool.Deadline = ferrule.Duration(deadline)
	return t
}

// Slow returns the tool, marked as slow: its calls become tasks for callers that know tasks.
func (t Tool) Slow() Tool {
	t.tool.Task = ferrule.TaskSlow
	return t
}

// Name returns the name of the tool.
func (t Tool) Name() string { return t.tool.Name }

// Set is a set of built-in tools.
type Set struct {
	device   *ferrule.Device
	manifest *ferrule.Manifest
	calls    map[string]func(ctx context.Context, call *ferrule.Call) (any, error)
}

// New returns the tools of the gateway itself. It derives the schemas of all tools.
func New(version string, tools ...Tool) (*Set, error) {
	return NewDevice(ferrule.GatewayID, version, tools...)
}

// NewDevice is New for tools of a device of their own.
func NewDevice(id, version string, tools ...Tool) (*Set, error) {
	s := &Set{
		manifest: &ferrule.Manifest{Model: "ferrule", Version: version, Platform: "go"},
		calls:    make(map[string]func(context.Context, *ferrule.Call) (any, error)),
	}
	tools = slices.Clone(tools)
	if err := deriveSchemas(tools); err != nil {
		return nil, err
	}
	for _, t := range tools {
		if s.calls[t.tool.Name] != nil {
			return nil, fmt.Errorf("built-in tools: duplicate name %q", t.tool.Name)
		}
		s.manifest.Tools = append(s.manifest.Tools, t.tool)
		s.calls[t.tool.Name] = t.call
	}
	kind, err := s.manifest.Kind()
	if err != nil {
		return nil, fmt.Errorf("built-in tools: %w", err)
	}
	s.device = &ferrule.Device{
		ID: id, Kind: kind, Model: "ferrule", Version: version,
		State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}
	return s, nil
}

// deriveSchemas derives the schemas of tools with all processors. One after the other took longer
// than any other part of starting a gateway.
func deriveSchemas(tools []Tool) error {
	errs := make([]error, len(tools))
	var derived sync.WaitGroup
	for i := range tools {
		derived.Go(func() { errs[i] = tools[i].deriveSchemas() })
	}
	derived.Wait()
	return errors.Join(errs...)
}

// deriveSchemas derives the schemas of the tool.
func (t *Tool) deriveSchemas() error {
	if t.input == nil {
		return errors.New("built-in tools: one was not made by Typed or Shown")
	}
	input, err := t.input()
	if err != nil {
		return fmt.Errorf("built-in tool %s: input schema: %w", t.tool.Name, err)
	}
	t.tool.Input, t.tool.Check = input.Portable(), input.Check
	if t.output == nil {
		return nil
	}
	output, err := t.output()
	if err != nil {
		return fmt.Errorf("built-in tool %s: output schema: %w", t.tool.Name, err)
	}
	t.tool.Output = output.Portable() // no built-in tool returns null for a declared object
	return nil
}

// Device returns the gateway as a device.
func (s *Set) Device() *ferrule.Device { return s.device }

// Manifest returns the manifest with all built-in tools.
func (s *Set) Manifest() *ferrule.Manifest { return s.manifest }

// Handle serves a resolved call.
func (s *Set) Handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	fn := s.calls[call.Tool]
	if fn == nil {
		return nil, ferrule.Errorf(ferrule.NotFound, "%s has no tool %q", s.device.ID, call.Tool)
	}
	out, err := fn(ctx, call)
	if err != nil {
		return nil, err
	}
	if shown, ok := out.(*ferrule.Result); ok {
		return shown, nil
	}
	value, err := json.Marshal(out)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "encoding the result of %s: %w", call.Tool, err).AfterSend()
	}
	return &ferrule.Result{Value: value}, nil
}
