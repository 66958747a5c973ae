package api

import (
	"context"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Stop says what is stopped.
type Stop interface {
	StopState() StopState
}

// StopState is what is stopped now.
type StopState struct {
	Stopped    bool        `json:"stopped" jsonschema:"whether changes of all or some devices are denied"`
	Everything bool        `json:"everything" jsonschema:"whether changes of all devices are denied"`
	Orders     []StopOrder `json:"orders,omitempty" jsonschema:"the stops in force; those of everything first"`
	Report     *StopReport `json:"report,omitempty" jsonschema:"what the first of them did, if this node was told to stop"`
}

// StopOrder is a stop of everything or of one device.
type StopOrder struct {
	Device string    `json:"device,omitempty" jsonschema:"the device; empty for everything"`
	By     string    `json:"by" jsonschema:"who stopped it, as role:name"`
	Reason string    `json:"reason,omitempty" jsonschema:"why"`
	Time   time.Time `json:"time" jsonschema:"when"`
	Node   string    `json:"node" jsonschema:"the node that was told to stop"`
}

// StopReport is what a stop did.
type StopReport struct {
	Nodes      int        `json:"nodes" jsonschema:"how many nodes there were"`
	Confirmed  int        `json:"confirmed" jsonschema:"how many of them said that they send no more changes"`
	Unreached  []string   `json:"unreached,omitempty" jsonschema:"the others; they stop as soon as they hear of it"`
	Seconds    float64    `json:"seconds" jsonschema:"how long that took"`
	Cancelled  int        `json:"cancelled" jsonschema:"calls that were cancelled before they were sent"`
	MayHaveRun int        `json:"may_have_run" jsonschema:"calls that had been sent, and may have run"`
	Tools      []StopTool `json:"tools,omitempty" jsonschema:"the stop tools of devices that were called"`
}

// StopTool is what became of a stop tool.
type StopTool struct {
	Device     string `json:"device" jsonschema:"the device"`
	Tool       string `json:"tool" jsonschema:"its stop tool"`
	Error      string `json:"error,omitempty" jsonschema:"what went wrong; empty if the tool succeeded"`
	MayHaveRun bool   `json:"may_have_run,omitempty" jsonschema:"whether the tool may have run although there is an error"`
}

// stopOperations returns the operations that stop and resume changes.
func (a *API) stopOperations() []Operation {
	return []Operation{
		operation(http.MethodGet, "/stop", "Say what is stopped, and what the stop did.", ferrule.ScopeRead, func(context.Context, ferrule.Principal, NoInput) (StopState, error) { return a.StopState(), nil }),
		operation(http.MethodPost, "/stop", "Stop devices, or everything.", ferrule.ScopeRead, a.Stop),
		operation(http.MethodPost, "/resume", "Allow changes again after a stop.", ferrule.ScopeAdmin, a.Resume),
	}
}

// StopState returns what is stopped.
func (a *API) StopState() StopState { return a.parts.Stop.StopState() }

// Stop stops devices, or everything. Everybody may.
func (a *API) Stop(ctx context.Context, who ferrule.Principal, in builtin.StopInput) (builtin.StopOutput, error) {
	return Builtin[builtin.StopOutput](ctx, a, who, ferrule.StopTool, in)
}

// Resume allows changes again.
func (a *API) Resume(ctx context.Context, who ferrule.Principal, in builtin.ResumeInput) (builtin.StopOutput, error) {
	return Builtin[builtin.StopOutput](ctx, a, who, "resume_devices", in)
}
