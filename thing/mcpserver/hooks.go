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

// Outcome is what came of a call.
type Outcome struct {
	Tool string
	Args json.RawMessage
	Took time.Duration
	// Err is why it failed; nil if it did not.
	Err error
	// Cached says that the tool was not called, because its result was there.
	Cached bool
}

// Before has fn look at every call of a tool when its turn has come, and before
// anything is done. An error of fn refuses the call, and fn can Ask. It is set before
// the device is served; the first refusal counts.
func (d *Device) Before(fn func(ctx context.Context, tool string, args json.RawMessage) error) {
	d.before = append(d.before, fn)
}

// After has fn told what came of every call that was not refused. It is set before
// the device is served.
func (d *Device) After(fn func(ctx context.Context, o Outcome)) {
	d.after = append(d.after, fn)
}

// allowed asks the hooks before a call. One that panics refuses.
func (d *Device) allowed(ctx context.Context, tool string, args json.RawMessage) (err error) {
	defer func() {
		if r := recover(); r != nil {
			d.config.Log.Error("a hook panicked", "tool", tool, "err", fmt.Sprint(r))
			err = &thing.RefusedError{Reason: "Whether this may be done could not be found out: nothing was done"}
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

// tellAfter tells the hooks after a call. One that panics changes nothing about it.
func (d *Device) tellAfter(ctx context.Context, o Outcome) {
	for _, fn := range d.after {
		func() {
			defer func() {
				if r := recover(); r != nil {
					d.config.Log.Error("a hook panicked", "tool", o.Tool, "err", fmt.Sprint(r))
				}
			}()
			fn(ctx, o)
		}()
	}
}
