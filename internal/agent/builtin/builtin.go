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
	"fmt"
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
	err  error // why its schemas could not be derived
}

// Typed returns a tool that calls a function. Its schemas are derived from In and Out:
// names from json tags, descriptions from jsonschema tags; fields without omitempty are
// required. The function gets valid arguments. It should return a *ferrule.Error; other
// errors are reported as faults of the gateway.
func Typed[In, Out any](name, text string, effect ferrule.Effect, fn func(ctx context.Context, call *ferrule.Call, in In) (Out, error)) Tool {
	input, err := schema.For[In]()
	if err != nil {
		return Tool{err: err}
	}
	output, err := schema.For[Out]()
	if err != nil {
		return Tool{err: err}
	}
	return Tool{
		tool: ferrule.Tool{Name: name, Text: text, Effect: effect, Input: input, Output: output},
		call: func(ctx context.Context, call *ferrule.Call) (any, error) {
			var in In
			if err := json.Unmarshal(call.Args, &in); err != nil {
				return nil, ferrule.Errorf(ferrule.Invalid, "decoding the arguments of %s: %w", name, err)
			}
			return fn(ctx, call, in)
		},
	}
}

// Shown returns a tool whose result is content, such as an image, without a schema.
func Shown[In any](name, text string, effect ferrule.Effect, fn func(ctx context.Context, call *ferrule.Call, in In) (*ferrule.Result, error)) Tool {
	t := Typed(name, text, effect, fn)
	t.tool.Output = nil
	return t
}

// Undescribed returns the tool without the schema of its result: tools that are always
// listed should be short.
func (t Tool) Undescribed() Tool {
	t.tool.Output = nil
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

// Name returns the name of the tool.
func (t Tool) Name() string { return t.tool.Name }

// Set is a set of built-in tools.
type Set struct {
	device   *ferrule.Device
	manifest *ferrule.Manifest
	calls    map[string]func(ctx context.Context, call *ferrule.Call) (any, error)
}

// New returns the tools of the gateway itself. It compiles the schemas of all tools.
func New(version string, tools ...Tool) (*Set, error) {
	return NewDevice(ferrule.GatewayID, version, tools...)
}

// NewDevice is New for tools of a device of their own.
func NewDevice(id, version string, tools ...Tool) (*Set, error) {
	s := &Set{
		manifest: &ferrule.Manifest{Model: "ferrule", Version: version, Platform: "go"},
		calls:    make(map[string]func(context.Context, *ferrule.Call) (any, error)),
	}
	for _, t := range tools {
		if t.err != nil {
			return nil, fmt.Errorf("built-in tools: %w", t.err)
		}
		compiled, err := schema.Compile(t.tool.Input)
		if err != nil {
			return nil, fmt.Errorf("built-in tool %s: input schema: %w", t.tool.Name, err)
		}
		t.tool.Input, t.tool.Check = compiled.Portable(), compiled.Check
		if t.tool.Output != nil {
			if compiled, err = schema.Compile(t.tool.Output); err != nil {
				return nil, fmt.Errorf("built-in tool %s: output schema: %w", t.tool.Name, err)
			}
			t.tool.Output = compiled.Portable() // no built-in tool returns null for a declared object
		}
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
