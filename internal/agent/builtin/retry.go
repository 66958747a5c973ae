package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Retrier connects devices.
type Retrier interface {
	// Retry connects a device now, and returns when it is connected or why it is not.
	Retry(ctx context.Context, id string) error
}

// RetryDeviceInput has the arguments of retry_device.
type RetryDeviceInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// RetryDeviceOutput is the result of retry_device.
type RetryDeviceOutput struct {
	Device string        `json:"device"`
	State  ferrule.State `json:"state"`
}

// RetryDevice returns the tool retry_device.
func RetryDevice(dock Retrier) Tool {
	const text = "Connects a device that is offline now, instead of at the next attempt. A device that is online stays connected."
	return Typed("retry_device", text, ferrule.Changes, func(ctx context.Context, _ *ferrule.Call, in RetryDeviceInput) (RetryDeviceOutput, error) {
		return RetryDeviceOutput{in.Device, ferrule.StateOnline}, dock.Retry(ctx, in.Device)
	}).ForPeople()
}
