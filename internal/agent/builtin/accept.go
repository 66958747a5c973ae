package builtin

import (
	"context"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/pinning"
)

// Acceptor shows and accepts changes of devices.
type Acceptor interface {
	// Changes returns what a device offers and its owner has not accepted, or how it
	// differs from a Kind that it had before.
	Changes(id string, since ferrule.Kind) (pinning.Report, error)
	// Accept accepts what a device offers, if its Kind begins with these digits. It returns
	// the other devices for which the same change was accepted.
	Accept(id string, kind ferrule.Kind) (dev *ferrule.Device, others []string, err error)
}

// DeviceChangesInput has the arguments of device_changes.
type DeviceChangesInput struct {
	Device string       `json:"device" jsonschema:"ID of the device"`
	Since  ferrule.Kind `json:"since,omitempty" jsonschema:"Kind to compare with: one that the device had before, instead of the accepted one"`
}

// DeviceChanges returns the tool device_changes.
func DeviceChanges(dock Acceptor) Tool {
	const text = "Returns how a device differs from what its owner accepted, word by word."
	return Typed("device_changes", text, ferrule.Reads, func(_ context.Context, _ *ferrule.Call, in DeviceChangesInput) (pinning.Report, error) {
		return dock.Changes(in.Device, in.Since)
	}).ForPeople()
}

// AcceptInput has the arguments of accept_device.
type AcceptInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	Kind   string `json:"kind" jsonschema:"offered Kind from device_changes, or at least its first 12 digits"`
}

// AcceptDevice returns the tool accept_device.
func AcceptDevice(dock Acceptor) Tool {
	const text = "Accepts what a device offers, so that it may be used. Nothing is accepted if the device has changed again."
	return Typed("accept_device", text, ferrule.Changes, func(_ context.Context, _ *ferrule.Call, in AcceptInput) (TrustOutput, error) {
		dev, others, err := dock.Accept(in.Device, ferrule.Kind(in.Kind))
		if err != nil {
			return TrustOutput{}, err
		}
		note := fmt.Sprintf("All of its tools can be used. Its Kind is %s.", dev.Kind.Short())
		if len(others) > 0 {
			note += fmt.Sprintf(" The same change of %s is accepted too: %s.", count(len(others), "other device"), FirstOf(others))
		}
		return TrustOutput{Device: dev.ID, Note: note}, nil
	}).ForPeople()
}
