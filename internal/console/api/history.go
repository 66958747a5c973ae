package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Past is what the API reads about the past of devices. Each part may be nil.
type Past struct {
	// Records are the measurements of the devices of this node.
	Records builtin.Records
	// Calls finds calls in the journals of all nodes.
	Calls builtin.CallLog
	// Events returns the last stored events of a device, the oldest first.
	Events func(ctx context.Context, device string, limit int) ([]ferrule.Event, error)
	// Trace calls fn with the frames of a device until ctx ends.
	Trace func(ctx context.Context, device string, fn func(ferrule.Trace)) error
}

// historyOperations returns the operations on what a device measured, reported and said.
func (a *API) historyOperations() []Operation {
	return []Operation{
		operation(http.MethodGet, "/devices/{device}/latest", "Return the latest measured value of each signal of a device.", ferrule.ScopeRead, a.Latest),
		operation(http.MethodGet, "/devices/{device}/history", "Return measured values of a device over a time range, with gaps.", ferrule.ScopeRead, a.History),
		operation(http.MethodGet, "/devices/{device}/calls", "List the calls of a device that ran or may have run in a time range, to mark them in a chart.", ferrule.ScopeRead, a.Calls),
		operation(http.MethodGet, "/devices/{device}/events", "List the last events of a device, the newest first.", ferrule.ScopeRead, a.Events),
		operation(http.MethodGet, "/devices/{device}/resources", "List the resources of a device.", ferrule.ScopeRead, a.Resources),
		operation(http.MethodGet, "/devices/{device}/resources/read", "Read a resource from a device.", ferrule.ScopeRead, a.ReadResource),
		operation(http.MethodGet, "/devices/{device}/trace", "Record the frames on the link to a device for some seconds.", ferrule.ScopeAdmin, a.Trace),
	}
}

// Latest returns the latest value of each signal of a device.
func (a *API) Latest(ctx context.Context, who ferrule.Principal, in builtin.LatestInput) (builtin.LatestOutput, error) {
	return Builtin[builtin.LatestOutput](ctx, a, who, "latest", in)
}

// History returns measured values of a device. The node that has the values answers.
func (a *API) History(ctx context.Context, who ferrule.Principal, in builtin.HistoryInput) (builtin.HistoryOutput, error) {
	return Builtin[builtin.HistoryOutput](ctx, a, who, "history", in)
}

// CallsInput selects a device and a time range.
type CallsInput struct {
	Device string    `json:"device" jsonschema:"ID of the device"`
	Since  time.Time `json:"since,omitzero" jsonschema:"default: one hour before until"`
	Until  time.Time `json:"until,omitzero" jsonschema:"default: now"`
}

// CallsOutput is the result of Calls.
type CallsOutput struct {
	Calls []CallMark `json:"calls"`
	// Problem says which calls are missing.
	Problem string `json:"problem,omitempty" jsonschema:"why calls are missing"`
}

// CallMark is a call in a chart.
type CallMark struct {
	Time       time.Time `json:"time"`
	Tool       string    `json:"tool"`
	MayHaveRun bool      `json:"may_have_run,omitempty" jsonschema:"whether it is unknown what the call has done"`
}

// Calls returns the calls of a device's tools that the person is shown.
func (a *API) Calls(ctx context.Context, who ferrule.Principal, in CallsInput) (CallsOutput, error) {
	out := CallsOutput{Calls: []CallMark{}}
	found, err := a.Find(who, in.Device)
	if err != nil {
		return out, err
	}
	if a.parts.Past.Calls == nil {
		return out, nil
	}
	if in.Until.IsZero() {
		in.Until = time.Now()
	}
	if in.Since.IsZero() {
		in.Since = in.Until.Add(-time.Hour)
	}
	if !in.Since.Before(in.Until) {
		return out, ferrule.Errorf(ferrule.Invalid, "since must be before until")
	}
	calls, err := a.parts.Past.Calls.Calls(ctx, found.Device.ID, in.Since, in.Until)
	if err != nil {
		out.Problem = ferrule.Clean(err.Error(), ferrule.MaxReason)
	}
	for _, e := range calls {
		if found.Seen.Shows == nil || found.Manifest != nil && found.Seen.Item(found.Device, found.Manifest, e.Operation, e.Tool) {
			out.Calls = append(out.Calls, CallMark{e.Time.UTC(), ferrule.Clean(e.Tool, ferrule.MaxToolName), e.MayHaveRun})
		}
	}
	return out, nil
}

// Limits of events.
const (
	defaultEvents = 100
	maxEvents     = 1000
)

// EventsInput selects events of a device.
type EventsInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	Limit  int    `json:"limit,omitempty" jsonschema:"maximum number, default 100"`
}

// EventsOutput is the result of Events.
type EventsOutput struct {
	Events []DeviceEvent `json:"events"`
}

// DeviceEvent is something that happened to a device, or that it reported.
type DeviceEvent struct {
	Time   time.Time       `json:"time"`
	Type   string          `json:"type" jsonschema:"appeared, gone, changed, pending, quarantined, waiting, notified, approval, stopped or resumed"`
	Node   string          `json:"node"`
	Reason string          `json:"reason,omitempty"`
	Tools  []string        `json:"tools,omitempty" jsonschema:"the first few affected tools"`
	Method string          `json:"method,omitempty" jsonschema:"the device's name for what it reports"`
	Params json.RawMessage `json:"params,omitempty" jsonschema:"what the device reports"`
}

// EventOf returns an event as a person sees it.
func EventOf(e ferrule.Event) DeviceEvent {
	return DeviceEvent{Time: e.Time.UTC(), Type: string(e.Type), Node: e.Node, Reason: e.Reason, Tools: e.Tools, Method: e.Method, Params: e.Params}
}

// Events returns the last events of a device, the newest first.
func (a *API) Events(ctx context.Context, who ferrule.Principal, in EventsInput) (EventsOutput, error) {
	out := EventsOutput{Events: []DeviceEvent{}}
	found, err := a.Find(who, in.Device)
	if err != nil {
		return out, err
	}
	switch {
	case in.Limit < 0 || in.Limit > maxEvents:
		return out, ferrule.Errorf(ferrule.Invalid, "limit must be from 1 to %d, got %d", maxEvents, in.Limit)
	case in.Limit == 0:
		in.Limit = defaultEvents
	}
	if a.parts.Past.Events == nil {
		return out, nil
	}
	all, err := a.parts.Past.Events(ctx, found.Device.ID, in.Limit)
	if err != nil {
		return out, ferrule.Errorf(ferrule.Offline, "%w", err).WithHint("new events are shown as they happen")
	}
	for i := len(all) - 1; i >= 0; i-- {
		out.Events = append(out.Events, EventOf(all[i]))
	}
	return out, nil
}

// ResourcesOutput is the result of Resources.
type ResourcesOutput struct {
	Resources []ferrule.Resource `json:"resources"`
}

// ResourcesInput names a device.
type ResourcesInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// Resources returns the resources of a device that the person is shown.
func (a *API) Resources(_ context.Context, who ferrule.Principal, in ResourcesInput) (ResourcesOutput, error) {
	out := ResourcesOutput{Resources: []ferrule.Resource{}}
	found, err := a.Find(who, in.Device)
	if err != nil || found.Manifest == nil {
		return out, err
	}
	for _, r := range found.Manifest.Resources {
		if found.Seen.Item(found.Device, found.Manifest, ferrule.ReadResource, r.URI) {
			out.Resources = append(out.Resources, r)
		}
	}
	return out, nil
}

// ReadResourceInput selects a resource of a device.
type ReadResourceInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	URI    string `json:"uri" jsonschema:"the device's own name of the resource"`
}

// ReadResource reads a resource from a device.
func (a *API) ReadResource(ctx context.Context, who ferrule.Principal, in ReadResourceInput) (CallOutput, error) {
	if in.URI == "" || ferrule.Clean(in.URI, ferrule.MaxURI) != in.URI {
		return CallOutput{}, ferrule.Errorf(ferrule.Invalid, "uri must be that of a resource")
	}
	return a.call(ctx, &ferrule.Call{Principal: who, Client: Client, Device: in.Device, Operation: ferrule.ReadResource, Tool: in.URI})
}

// Limits of a trace.
const (
	defaultTraceSeconds = 2
	maxTraceSeconds     = 30
	maxFrames           = 1000
)

// TraceInput selects a device and how long its frames are recorded.
type TraceInput struct {
	Device  string `json:"device" jsonschema:"ID of the device"`
	Seconds int    `json:"seconds,omitempty" jsonschema:"how long to record, default 2, maximum 30"`
}

// TraceOutput is the result of Trace.
type TraceOutput struct {
	Frames []ferrule.Trace `json:"frames"`
	// Dropped is how many frames more there were.
	Dropped int `json:"dropped,omitempty"`
}

// Trace records the frames of a device for some seconds.
func (a *API) Trace(ctx context.Context, who ferrule.Principal, in TraceInput) (TraceOutput, error) {
	out := TraceOutput{Frames: []ferrule.Trace{}}
	switch {
	case in.Seconds < 0 || in.Seconds > maxTraceSeconds:
		return out, ferrule.Errorf(ferrule.Invalid, "seconds must be from 1 to %d, got %d", maxTraceSeconds, in.Seconds)
	case in.Seconds == 0:
		in.Seconds = defaultTraceSeconds
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(in.Seconds)*time.Second)
	defer cancel()
	frames := make(chan ferrule.Trace, maxFrames)
	dropped := make(chan struct{}, maxFrames)
	err := a.FollowTrace(ctx, who, in.Device, func(t ferrule.Trace) {
		select {
		case frames <- t:
		default:
			select {
			case dropped <- struct{}{}:
			default:
			}
		}
	})
	for len(frames) > 0 {
		out.Frames = append(out.Frames, <-frames)
	}
	out.Dropped = len(dropped)
	return out, err
}

// FollowTrace calls fn with the frames of a device until ctx ends. Only owners may see
// them, because they have what the tools hide. fn is called concurrently and must not block.
func (a *API) FollowTrace(ctx context.Context, who ferrule.Principal, device string, fn func(ferrule.Trace)) error {
	if !who.Scopes.Has(ferrule.ScopeAdmin) {
		return ferrule.Errorf(ferrule.Denied, "%s may not see the frames of a device: it needs the scope %s", who.Name, ferrule.ScopeAdmin)
	}
	found, err := a.Find(who, device)
	if err != nil {
		return err
	}
	if a.parts.Past.Trace == nil {
		return ferrule.Errorf(ferrule.Offline, "frames cannot be traced here")
	}
	return a.parts.Past.Trace(ctx, found.Device.ID, fn)
}

// Newest returns the latest values of a device that was found, if this node has them. It is
// cheap and not recorded: an open page asks for it each time that it connects.
func (a *API) Newest(ctx context.Context, found Found) []ferrule.Latest {
	if a.parts.Past.Records == nil || found.Device == nil {
		return nil
	}
	all, _ := a.parts.Past.Records.Latest(ctx, found.Device.ID)
	return all
}
