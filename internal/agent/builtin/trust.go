package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Trust adopts and forgets devices.
type Trust interface {
	// Adopt lets agents use a pending device, under a name if that is not empty.
	Adopt(ctx context.Context, id, name string) (TrustOutput, error)
	// Forget removes everything stored about a device.
	Forget(id string) (TrustOutput, error)
}

// AdoptInput has the arguments of adopt_device.
type AdoptInput struct {
	Device string `json:"device" jsonschema:"ID of the device, or the code that it shows"`
	Name   string `json:"name,omitempty" jsonschema:"new ID of the device; default: as it is"`
}

// TrustInput has the arguments of forget_device.
type TrustInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// TrustOutput is the result of adopt_device and forget_device.
type TrustOutput struct {
	Device string `json:"device" jsonschema:"ID of the device; its address if it has none yet"`
	Note   string `json:"note,omitempty" jsonschema:"what happens next"`
}

// AdoptDevice returns the tool adopt_device.
func AdoptDevice(trust Trust) Tool {
	const text = "Adopts a pending device, so that agents may use it."
	return Typed("adopt_device", text, ferrule.Changes, func(ctx context.Context, _ *ferrule.Call, in AdoptInput) (TrustOutput, error) {
		return trust.Adopt(ctx, in.Device, in.Name)
	}).ForPeople()
}

// ForgetDevice returns the tool forget_device.
func ForgetDevice(trust Trust) Tool {
	const text = "Forgets a device: its name, trust and manifest. If it is still connected, it appears as new."
	return Typed("forget_device", text, ferrule.Changes, func(_ context.Context, _ *ferrule.Call, in TrustInput) (TrustOutput, error) {
		return trust.Forget(in.Device)
	}).ForPeople()
}
