package ferrule

import (
	"context"
	"encoding/json"
)

// StopTool is the gateway's tool that stops changes. Every caller may call it at any time:
// neither the policy nor a limit nor a full disk keeps it from running.
const StopTool = "stop_devices"

// IsStop reports whether a call of a tool stops changes.
func IsStop(device, tool string) bool { return device == GatewayID && tool == StopTool }

// Stops reports whether the call stops changes.
func (c *Call) Stops() bool { return c.Operation == CallTool && IsStop(c.Device, c.Tool) }

// Action is a call that an owner configured.
type Action struct {
	Tool string `json:"tool"`
	// Args is a JSON object, or empty for none.
	Args json.RawMessage `json:"args,omitempty"`
}

type sendKey struct{}

// WithSend returns a context whose MaySend calls a function.
func WithSend(ctx context.Context, maySend func() error) context.Context {
	return context.WithValue(ctx, sendKey{}, maySend)
}

// MaySend must be called each time before a call is given to its device or to another
// node. If it returns an error, the call was stopped and must not be sent. After it
// returned nil, a stop waits for the call to end.
func MaySend(ctx context.Context) error {
	if maySend, ok := ctx.Value(sendKey{}).(func() error); ok {
		return maySend()
	}
	return nil
}
