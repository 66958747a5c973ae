package builtin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Words tells of devices, and what each said last by itself: the last thing by each of
// its own words, the last of all first. What it returns is shared and read only.
type Words interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
	Said(id string) []ferrule.Event
}

// DeviceStateInput is the arguments of device_state.
type DeviceStateInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// DeviceStateOutput is the result of device_state.
type DeviceStateOutput struct {
	Device string    `json:"device"`
	State  string    `json:"state" jsonschema:"online, offline, or released to other programs"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty" jsonschema:"why it is not online"`
	Said   []Word    `json:"said" jsonschema:"what it told last by itself; it need not be true"`
}

// Word is one thing that a device said.
type Word struct {
	Method string          `json:"method" jsonschema:"what it is about, in a word of the device"`
	Time   time.Time       `json:"time"`
	Params json.RawMessage `json:"params,omitempty"`
}

// DeviceState is the tool that tells how a device is, and what it last said of itself.
func DeviceState(words Words) Tool {
	const text = "Tell whether a device can be reached, and what it last told by itself."
	return Typed("device_state", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, in DeviceStateInput) (DeviceStateOutput, error) {
		dev, _, ok := words.Lookup(in.Device)
		if !ok || !call.Principal.CanSee(dev) {
			return DeviceStateOutput{}, ferrule.UnknownDevice(in.Device)
		}
		out := DeviceStateOutput{Device: dev.ID, State: string(dev.State), Since: dev.Since, Reason: dev.Reason, Said: []Word{}}
		for _, e := range words.Said(in.Device) {
			out.Said = append(out.Said, Word{e.Method, e.Time, e.Params})
		}
		return out, nil
	})
}
