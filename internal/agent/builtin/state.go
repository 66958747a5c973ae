package builtin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Statements returns devices and their latest notifications: the last one of each
// method, newest first. Results are shared and read-only.
type Statements interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
	Said(id string) []ferrule.Event
}

// DeviceStateInput has the arguments of device_state.
type DeviceStateInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// DeviceStateOutput is the result of device_state.
type DeviceStateOutput struct {
	Device string      `json:"device"`
	State  string      `json:"state" jsonschema:"online, offline, or released to other programs"`
	Since  time.Time   `json:"since"`
	Reason string      `json:"reason,omitempty" jsonschema:"why it is not online"`
	Said   []Statement `json:"said" jsonschema:"latest notifications of the device; not verified"`
}

// Statement is one notification of a device.
type Statement struct {
	Method string          `json:"method" jsonschema:"the device's own name for it"`
	Time   time.Time       `json:"time"`
	Params json.RawMessage `json:"params,omitempty"`
}

// DeviceState returns the tool device_state.
func DeviceState(fleet Statements) Tool {
	const text = "Returns whether a device is online, and its latest notifications."
	return Typed("device_state", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, in DeviceStateInput) (DeviceStateOutput, error) {
		dev, _, ok := fleet.Lookup(in.Device)
		if !ok || !call.Principal.CanSee(dev) {
			return DeviceStateOutput{}, ferrule.UnknownDevice(in.Device)
		}
		out := DeviceStateOutput{Device: dev.ID, State: string(dev.State), Since: dev.Since, Reason: dev.Reason, Said: []Statement{}}
		for _, e := range fleet.Said(in.Device) {
			out.Said = append(out.Said, Statement{e.Method, e.Time, e.Params})
		}
		return out, nil
	})
}
