package builtin

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Releaser lets go of devices.
type Releaser interface {
	// Release lets go of a device for a while, and returns when it has.
	Release(ctx context.Context, id string, length time.Duration) error
}

// MaxRelease is the longest that a device can be released for at once.
const MaxRelease = 24 * time.Hour

// ReleaseDeviceInput is the arguments of release_device.
type ReleaseDeviceInput struct {
	Device string           `json:"device" jsonschema:"ID of the device"`
	For    ferrule.Duration `json:"for" jsonschema:"how long, such as 2m; 0s takes it back at once"`
}

// ReleaseDeviceOutput is the result of release_device.
type ReleaseDeviceOutput struct {
	Device string    `json:"device"`
	Until  time.Time `json:"until"`
}

// ReleaseDevice is the tool by which a person lets go of a device, to flash its
// firmware, say.
func ReleaseDevice(dock Releaser) Tool {
	const text = "Let go of a device for a while, so that another program can use its port. It is taken back by itself."
	return Typed("release_device", text, ferrule.Changes, func(ctx context.Context, _ *ferrule.Call, in ReleaseDeviceInput) (ReleaseDeviceOutput, error) {
		length := time.Duration(in.For)
		if length < 0 || length > MaxRelease {
			return ReleaseDeviceOutput{}, ferrule.Errorf(ferrule.Invalid, "for: want from 0s to %v, got %v", MaxRelease, length)
		}
		return ReleaseDeviceOutput{in.Device, time.Now().Add(length)}, dock.Release(ctx, in.Device, length)
	}).ForPeople()
}
