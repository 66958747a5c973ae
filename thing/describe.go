package thing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// Description is what a device says of one of its own tools, for who speaks
// another language than MCP/U.
type Description struct {
	Name, Text string
	// Title is a name for people to read; empty if there is none.
	Title string
	// Schema is the JSON Schema of the tool's arguments.
	Schema json.RawMessage
	// Output is the JSON Schema of its result; nil if that is no object.
	Output json.RawMessage
	// UserOnly marks a tool that is for people and not for models.
	UserOnly bool
	// Reads marks a tool that changes nothing.
	Reads bool
	// Idempotent marks a tool that may be called again with the same arguments:
	// nothing more happens.
	Idempotent bool
	// Endangers marks a tool that can do harm.
	Endangers bool
}

// UserOnly marks a tool as one for people and not for models. MCP/U has no word
// for it.
func UserOnly() ToolOption {
	return func(t *tool) { t.Description.UserOnly = true }
}

// Titled gives a tool a name for people to read.
func Titled(title string) ToolOption {
	return func(t *tool) { t.Title = title }
}

// Reads marks a tool as one that changes nothing.
func Reads() ToolOption {
	return func(t *tool) { t.Description.Reads = true }
}

// Idempotent marks a tool as one that may be called again with the same arguments:
// nothing more happens.
func Idempotent() ToolOption {
	return func(t *tool) { t.Description.Idempotent = true }
}

// Endangers marks a tool as one that can do harm.
func Endangers() ToolOption {
	return func(t *tool) { t.Description.Endangers = true }
}

// Name is the name of the device's model.
func (d *Device) Name() string { return d.name }

// Version is the version of the device's firmware.
func (d *Device) Version() string { return d.version }

// Twin makes another device as this one was made, with its name and its tools, and
// without pins. The functions of its tools are the same ones: for which device they
// run, they learn from their context, which within makes of the caller's. A thousand
// twins take little memory.
func (d *Device) Twin(within func(ctx context.Context) context.Context) *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Device{name: d.name, version: d.version, Platform: d.Platform, Profile: d.Profile, tools: slices.Clip(d.tools), within: within}
}

// Tools describes the device's own tools in the order in which they were declared.
// What MCP/U has built in is not among them.
func (d *Device) Tools() []Description {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Description
	for _, t := range d.tools {
		all = append(all, t.Description)
	}
	return all
}

// Call calls one of the device's own tools, after whatever it is at. A tool that
// was not tried returns a RefusedError, also when ctx ended before its turn came; one
// that panics fails, and the device lives on.
func (d *Device) Call(ctx context.Context, name string, args json.RawMessage) (result any, err error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	if ctx.Err() != nil {
		return nil, &RefusedError{"The caller had gone before its turn came: nothing was done"}
	}
	t := d.toolNamed(name)
	if t == nil {
		return nil, &RefusedError{"Unknown tool: " + name}
	}
	defer func() {
		if r := recover(); r != nil {
			result, err = nil, fmt.Errorf("%s panicked: %v", name, r)
		}
	}()
	return d.run(ctx, t, args)
}

// run runs a tool.
func (d *Device) run(ctx context.Context, t *tool, args json.RawMessage) (any, error) {
	if d.within != nil {
		ctx = d.within(ctx)
	}
	return t.call(ctx, args)
}
