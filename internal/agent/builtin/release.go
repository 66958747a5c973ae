package builtin

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Releaser releases ports of devices.
type Releaser interface {
	// Release releases a device for a while, and returns when its port is free.
	Release(ctx context.Context, id string, length time.Duration) error
}

// ReleaseDeviceInput has the arguments of release_device.
type ReleaseDeviceInput struct {
	Device string           `json:"device" jsonschema:"ID of the device"`
	For    ferrule.Duration `json:"for" jsonschema:"duration such as 2m; 0s reconnects at once"`
}

// ReleaseDeviceOutput is the result of release_device.
type ReleaseDeviceOutput struct {
	Device string    `json:"device"`
	Until  time.Time `json:"until"`
}

// ReleaseDevice returns the tool release_device, for example to flash firmware.
func ReleaseDevice(dock Releaser) Tool {
	const text = "Releases the port of a device for a while, so that another program can use it. Ferrule reconnects by itself."
	return Typed("release_device", text, ferrule.Changes, func(ctx context.Context, _ *ferrule.Call, in ReleaseDeviceInput) (ReleaseDeviceOutput, error) {
		length := time.Duration(in.For)
		if length < 0 || length > ferrule.MaxRelease {
			return ReleaseDeviceOutput{}, ferrule.Errorf(ferrule.Invalid, "for must be from 0s to %v, got %v", ferrule.MaxRelease, length)
		}
		return ReleaseDeviceOutput{in.Device, time.Now().Add(length)}, dock.Release(ctx, in.Device, length)
	}).ForPeople()
}
