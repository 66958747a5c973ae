package thing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Description describes one of the device's own tools, for servers of other protocols than
// MCP/U.
type Description struct {
	Name, Text string
	// Title is a display name; it may be empty.
	Title string
	// Schema is the JSON Schema of the tool's arguments.
	Schema json.RawMessage
	// Output is the JSON Schema of the result; nil if the result is not an object.
	Output json.RawMessage
	// UserOnly marks a tool that is for people, not for models.
	UserOnly bool
	// Reads marks a tool that changes nothing.
	Reads bool
	// Idempotent marks a tool that can be repeated with the same arguments without a further
	// effect.
	Idempotent bool
	// Endangers marks a tool that can do harm.
	Endangers bool
	// Poll is the interval at which the device wants to be polled; zero for never.
	Poll time.Duration
	// Pins are the pins that a built-in tool works on; nil for other tools.
	Pins []PinInfo
}

// UserOnly marks a tool that is for people, not for models. MCP/U cannot express it.
func UserOnly() ToolOption {
	return func(t *tool) { t.Description.UserOnly = true }
}

// Titled sets a display name.
func Titled(title string) ToolOption {
	return func(t *tool) { t.Title = title }
}

// Reads marks a tool that changes nothing.
func Reads() ToolOption {
	return func(t *tool) { t.Description.Reads = true }
}

// Idempotent marks a tool that can be repeated with the same arguments without a further
// effect.
func Idempotent() ToolOption {
	return func(t *tool) { t.Description.Idempotent = true }
}

// Endangers marks a tool that can do harm.
func Endangers() ToolOption {
	return func(t *tool) { t.Description.Endangers = true }
}

// Name returns the name of the device's model.
func (d *Device) Name() string { return d.name }

// Version returns the version of the device's firmware.
func (d *Device) Version() string { return d.version }

// Clone returns a device with the same name and tools, without pins. The clones share the
// functions of the tools; withContext derives the context of each call, from which a function
// learns its device. A thousand clones need little memory.
func (d *Device) Clone(withContext func(ctx context.Context) context.Context) *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Device{name: d.name, version: d.version, Platform: d.Platform, Profile: d.Profile, tools: slices.Clip(d.tools), withContext: withContext}
}

// Tools returns the device's own tools in the order of their declaration, and then the built-in
// tools that it has pins for.
func (d *Device) Tools() []Description {
	d.mu.Lock()
	var all []Description
	for _, t := range d.tools {
		all = append(all, t.Description)
	}
	d.mu.Unlock()
	return append(all, d.pinTools()...)
}

// Call calls one of the tools that Tools returns, when it is its turn. It returns a RefusedError
// if the tool did not run, also if ctx ended before. A panic of the tool becomes an error.
func (d *Device) Call(ctx context.Context, name string, args json.RawMessage) (result any, err error) {
	end := func() {}
	if ctx.Value(freeKey{}) == nil {
		d.turn.Lock()
		end = sync.OnceFunc(d.turn.Unlock)
	}
	defer end()
	if ctx.Err() != nil {
		return nil, &RefusedError{Reason: "Cancelled before the call started: nothing was done"}
	}
	ctx = context.WithValue(ctx, turnKey{}, end)
	t := d.toolNamed(name)
	if t == nil {
		t = d.pinTool(name)
	}
	if t == nil {
		return nil, &RefusedError{Reason: "Unknown tool: " + name}
	}
	defer func() {
		if r := recover(); r != nil {
			result, err = nil, fmt.Errorf("%s panicked: %v", name, r)
		}
	}()
	return d.run(ctx, t, args)
}

type turnKey struct{}

type freeKey struct{}

// WithoutTurn returns a context with which Call does not wait for its turn: the tool takes long,
// and others can be called meanwhile. It must lock what it shares with them.
func WithoutTurn(ctx context.Context) context.Context { return context.WithValue(ctx, freeKey{}, true) }

// EndTurn ends the turn of the tool that is called with ctx, so that other tools can be called
// while it goes on. It must lock what it shares with them.
func EndTurn(ctx context.Context) {
	if end, ok := ctx.Value(turnKey{}).(func()); ok {
		end()
	}
}

func (d *Device) run(ctx context.Context, t *tool, args json.RawMessage) (any, error) {
	if d.withContext != nil {
		ctx = d.withContext(ctx)
	}
	return t.call(ctx, args)
}
