package builtin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// NotificationSource returns devices and their latest notifications: the last one of each
// method, newest first. Results are shared and read-only.
type NotificationSource interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
	Notifications(id string) []ferrule.Event
}

// DeviceStateInput has the arguments of device_state.
type DeviceStateInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// DeviceStateOutput is the result of device_state.
type DeviceStateOutput struct {
	Device        string         `json:"device"`
	State         string         `json:"state" jsonschema:"online, offline, or released to other programs"`
	Since         time.Time      `json:"since"`
	Reason        string         `json:"reason,omitempty" jsonschema:"why it is not online"`
	Notifications []Notification `json:"notifications" jsonschema:"latest notifications of the device; not verified"`
}

// Notification is one notification of a device.
type Notification struct {
	Method string          `json:"method" jsonschema:"the device's own name for it"`
	Time   time.Time       `json:"time"`
	Params json.RawMessage `json:"params,omitempty"`
}

// DeviceState returns the tool device_state.
func DeviceState(fleet NotificationSource, see See) Tool {
	const text = "Returns whether a device is online, and its latest notifications."
	return Typed("device_state", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, in DeviceStateInput) (DeviceStateOutput, error) {
		dev, manifest, ok := fleet.Lookup(in.Device)
		if !ok || !see.device(call, dev, manifest) {
			return DeviceStateOutput{}, ferrule.UnknownDevice(in.Device)
		}
		out := DeviceStateOutput{Device: dev.ID, State: string(dev.State), Since: dev.Since, Reason: dev.Reason, Notifications: []Notification{}}
		for _, e := range fleet.Notifications(dev.ID) {
			out.Notifications = append(out.Notifications, Notification{e.Method, e.Time, e.Params})
		}
		return out, nil
	})
}
