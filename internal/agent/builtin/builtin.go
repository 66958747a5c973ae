// Package builtin is the gateway's own tools: Go struct in, Go struct out. To
// whoever calls them they are the tools of one more device, whose ID is
// ferrule.GatewayID, and they take the same road.
//
//	Typed(name, text, effect, func(ctx, call, In) (Out, error))    ─▶ Tool
//	Shown(name, text, effect, func(ctx, call, In) (Result, error)) ─▶ Tool
//	New(version, tools…) ─▶ Box ─▶ Device, Manifest, Handle
//
// One tool, or a few that belong together, is one file. docs/how-to/add-a-builtin-tool.md
// tells how to add one.
package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// Tool is one tool of the gateway.
type Tool struct {
	tool ferrule.Tool
	call func(ctx context.Context, call *ferrule.Call) (any, error)
	err  error // why its schemas could not be derived
}

// Typed makes a tool of a function. The schemas come from In and Out: names from
// json tags, texts from jsonschema tags, and what is not omitempty is required.
// The function is called with arguments that fit. Its error is best a
// *ferrule.Error; any other is told as a fault of the gateway.
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
				return nil, ferrule.Errorf(ferrule.Invalid, "the arguments of %s cannot be used: %w", name, err)
			}
			return fn(ctx, call, in)
		},
	}
}

// Shown makes a tool of a function whose answer is to be looked at: it has content, and
// no schema.
func Shown[In any](name, text string, effect ferrule.Effect, fn func(ctx context.Context, call *ferrule.Call, in In) (*ferrule.Result, error)) Tool {
	t := Typed(name, text, effect, fn)
	t.tool.Output = nil
	return t
}

// ForPeople keeps a tool from agents.
func (t Tool) ForPeople() Tool {
	t.tool.UserOnly = true
	return t
}

// Within gives a tool more time, or less, than others have.
func (t Tool) Within(deadline time.Duration) Tool {
	t.tool.Deadline = ferrule.Duration(deadline)
	return t
}

// Box is the tools together.
type Set struct {
	device   *ferrule.Device
	manifest *ferrule.Manifest
	calls    map[string]func(ctx context.Context, call *ferrule.Call) (any, error)
}

// New puts tools in a box.
func New(version string, tools ...Tool) (*Set, error) {
	b := &Set{
		manifest: &ferrule.Manifest{Model: "ferrule", Version: version, Platform: "go"},
		calls:    make(map[string]func(context.Context, *ferrule.Call) (any, error)),
	}
	for _, t := range tools {
		if t.err != nil {
			return nil, fmt.Errorf("toolbox: %w", t.err)
		}
		compiled, err := schema.Compile(t.tool.Input)
		if err != nil {
			return nil, fmt.Errorf("toolbox: the schema of %s: %w", t.tool.Name, err)
		}
		t.tool.Input, t.tool.Check = compiled.Portable(), compiled.Check
		if t.tool.Output != nil {
			if compiled, err = schema.Compile(t.tool.Output); err != nil {
				return nil, fmt.Errorf("toolbox: the schema of what %s returns: %w", t.tool.Name, err)
			}
			t.tool.Output = compiled.Portable() // no tool returns null where it declares more
		}
		b.manifest.Tools = append(b.manifest.Tools, t.tool)
		b.calls[t.tool.Name] = t.call
	}
	kind, err := b.manifest.Kind()
	if err != nil {
		return nil, fmt.Errorf("toolbox: %w", err)
	}
	b.device = &ferrule.Device{
		ID: ferrule.GatewayID, Kind: kind, Model: "ferrule", Version: version,
		State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted,
	}
	return b, nil
}

// Device is the gateway as a device.
func (b *Set) Device() *ferrule.Device { return b.device }

// Manifest is what the gateway offers.
func (b *Set) Manifest() *ferrule.Manifest { return b.manifest }

// Handle serves a resolved call.
func (b *Set) Handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	fn := b.calls[call.Tool]
	if fn == nil {
		return nil, ferrule.Errorf(ferrule.NotFound, "the gateway has no tool %q", call.Tool)
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
		return nil, ferrule.Errorf(ferrule.Internal, "the result of %s cannot be told: %w", call.Tool, err).AfterSend()
	}
	return &ferrule.Result{Value: value}, nil
}
