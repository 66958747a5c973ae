package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Trust decides about devices.
type Trust interface {
	// Adopt trusts a device that was found.
	Adopt(id string) error
	// Forget drops all that is remembered of a device.
	Forget(id string) error
}

// TrustInput is the arguments of adopt_device and forget_device.
type TrustInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// TrustOutput is the result of adopt_device and forget_device.
type TrustOutput struct {
	Device string `json:"device"`
}

// AdoptDevice is the tool by which a person trusts a device.
func AdoptDevice(trust Trust) Tool {
	return trustTool("adopt_device", "Trust a device that was found, so that agents may use it.", trust.Adopt)
}

// ForgetDevice is the tool by which a person drops a device.
func ForgetDevice(trust Trust) Tool {
	return trustTool("forget_device", "Forget a device: its name, its trust, what it was. If it is in sight, it is met anew.", trust.Forget)
}

func trustTool(name, text string, do func(id string) error) Tool {
	return Typed(name, text, ferrule.Changes, func(_ context.Context, _ *ferrule.Call, in TrustInput) (TrustOutput, error) {
		return TrustOutput(in), do(in.Device)
	}).ForPeople()
}
