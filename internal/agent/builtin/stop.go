package builtin

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Stop stops and resumes changes.
type Stop interface {
	// Halt stops devices, or everything if there are none.
	Halt(ctx context.Context, by ferrule.Principal, reason string, devices []string) (StopOutput, error)
	// Resume ends the stops of devices, or all stops.
	Resume(ctx context.Context, by ferrule.Principal, devices []string) (StopOutput, error)
}

// StopInput has the arguments of stop_devices.
type StopInput struct {
	Devices []string `json:"devices,omitempty" jsonschema:"IDs of devices; default: all"`
	Reason  string   `json:"reason,omitempty" jsonschema:"why, for the people who resume"`
}

// ResumeInput has the arguments of resume_devices.
type ResumeInput struct {
	Devices []string `json:"devices,omitempty" jsonschema:"IDs of devices; default: all"`
}

// StopOutput is the result of stop_devices and resume_devices. It has no descriptions
// because each would be part of every tools/list.
type StopOutput struct {
	Summary string `json:"summary"`
	// Ended is the number of calls that were ended before they were sent, and MayHaveRun
	// of those that had been sent.
	Ended      int `json:"ended"`
	MayHaveRun int `json:"may_have_run"`
	// Acknowledged are other nodes that send no more changes, and Unreached those that
	// have not said so.
	Acknowledged []string `json:"acknowledged,omitempty"`
	Unreached    []string `json:"unreached,omitempty"`
	// Incomplete means that a device is unknown, a stop tool failed or a node has not said
	// that it stopped. Notes say which.
	Incomplete bool `json:"incomplete,omitempty"`
	// Notes are the results of stop tools, and what else a person should know.
	Notes []string `json:"notes,omitempty"`
}

// stopTime limits a stop: other nodes and stop tools are waited for.
const stopTime = 15 * time.Second

// StopDevices returns the tool stop_devices.
func StopDevices(stop Stop) Tool {
	const text = "Emergency stop: denies all changes, ends calls under way and calls stop tools. Always allowed. Only a person can resume."
	t := Typed(ferrule.StopTool, text, ferrule.Changes, func(ctx context.Context, call *ferrule.Call, in StopInput) (StopOutput, error) {
		return stop.Halt(ctx, call.Principal, in.Reason, in.Devices)
	}).WithDeadline(stopTime)
	t.tool.Idempotent = true
	return t
}

// ResumeDevices returns the tool resume_devices.
func ResumeDevices(stop Stop) Tool {
	const text = "Allows changes again after a stop."
	return Typed("resume_devices", text, ferrule.Changes, func(ctx context.Context, call *ferrule.Call, in ResumeInput) (StopOutput, error) {
		return stop.Resume(ctx, call.Principal, in.Devices)
	}).ForPeople()
}
