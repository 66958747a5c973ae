package ferrule

import (
	"context"
	"log/slog"
)

// callLog is a logger and the call that it writes about.
type callLog struct {
	log  *slog.Logger
	call *Call
}

type callLogKey struct{}

// WithLogger returns a context whose Logger writes about a call.
func WithLogger(ctx context.Context, log *slog.Logger, call *Call) context.Context {
	return context.WithValue(ctx, callLogKey{}, callLog{log, call})
}

// Logger returns the logger of the call that ctx belongs to. Its lines have the call's ID,
// device and tool, so that they can be found with those of the journal. Outside of a call,
// it returns a logger that writes nothing.
func Logger(ctx context.Context) *slog.Logger {
	c, ok := ctx.Value(callLogKey{}).(callLog)
	if !ok || c.log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.log.With("call", c.call.ID, "device", c.call.Device, "tool", c.call.Tool)
}
