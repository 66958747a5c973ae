package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ferrulehq/ferrule/thing"
)

// Outcome is the outcome of a call.
type Outcome struct {
	Tool string
	Args json.RawMessage
	Took time.Duration
	// Err is nil if the call succeeded.
	Err error
	// Cached reports whether the result came from the cache and the tool was not called.
	Cached bool
}

// Before adds a hook that runs before every call of a tool, in its turn. An error of fn
// refuses the call, and fn can use Ask. Hooks must be added before the device is
// served; the first refusal counts.
func (d *Device) Before(fn func(ctx context.Context, tool string, args json.RawMessage) error) {
	d.before = append(d.before, fn)
}

// After adds a hook that runs after every call that was not refused. It must be added
// before the device is served.
func (d *Device) After(fn func(ctx context.Context, o Outcome)) {
	d.after = append(d.after, fn)
}

// allowed runs the hooks before a call. A hook that panics refuses the call.
func (d *Device) allowed(ctx context.Context, tool string, args json.RawMessage) (err error) {
	defer func() {
		if r := recover(); r != nil {
			d.config.Log.Error("hook panicked", "tool", tool, "err", fmt.Sprint(r))
			err = &thing.RefusedError{Reason: "A check before the call failed: nothing was done"}
		}
	}()
	for _, fn := range d.before {
		err := fn(ctx, tool, args)
		var cannot *jsonrpc.Error
		switch {
		case errors.Is(err, errAsked), errors.As(err, &cannot):
			return err
		case err != nil:
			return &thing.RefusedError{Reason: err.Error()}
		}
	}
	return nil
}

// runAfter runs the hooks after a call. A hook that panics does not change the result.
func (d *Device) runAfter(ctx context.Context, o Outcome) {
	for _, fn := range d.after {
		func() {
			defer func() {
				if r := recover(); r != nil {
					d.config.Log.Error("hook panicked", "tool", o.Tool, "err", fmt.Sprint(r))
				}
			}()
			fn(ctx, o)
		}()
	}
}
