package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Trust adopts and forgets devices.
type Trust interface {
	// Adopt lets agents use a pending device.
	Adopt(id string) error
	// Forget removes everything stored about a device.
	Forget(id string) error
}

// TrustInput has the arguments of adopt_device and forget_device.
type TrustInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// TrustOutput is the result of adopt_device and forget_device.
type TrustOutput struct {
	Device string `json:"device"`
}

// AdoptDevice returns the tool adopt_device.
func AdoptDevice(trust Trust) Tool {
	return trustTool("adopt_device", "Adopts a pending device, so that agents may use it.", trust.Adopt)
}

// ForgetDevice returns the tool forget_device.
func ForgetDevice(trust Trust) Tool {
	return trustTool("forget_device", "Forgets a device: its name, trust and manifest. If it is still connected, it appears as new.", trust.Forget)
}

func trustTool(name, text string, do func(id string) error) Tool {
	return Typed(name, text, ferrule.Changes, func(_ context.Context, _ *ferrule.Call, in TrustInput) (TrustOutput, error) {
		return TrustOutput(in), do(in.Device)
	}).ForPeople()
}
