package api

import (
	"context"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/pinning"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// toolOperations returns the operations on calls of a device's tools, resources and prompts.
func (a *API) toolOperations() []Operation {
	return []Operation{
		operation(http.MethodPost, "/devices/{device}/tools/{tool}", "Call a tool of a device. A tool that endangers something needs confirmed.", ferrule.ScopeRead, a.Call),
		operation(http.MethodPost, "/devices/{device}/prompts/{prompt}", "Get a prompt of a device, filled in.", ferrule.ScopeRead, a.Prompt),
		operation(http.MethodGet, "/devices/{device}/changes", "Return how a device differs from what its owner accepted, word by word.", ferrule.ScopeAdmin, a.Changes),
	}
}

// Found is a device as a person may see it. All of it is shared and read only.
type Found struct {
	Device *ferrule.Device
	// Manifest is the effective manifest; nil if the device was never reached.
	Manifest *ferrule.Manifest
	// Stopped says why changes are denied; empty if they are not.
	Stopped string
	// Seen is what the person is shown of the device.
	Seen ferrule.Visibility
}

// Tool returns a tool that the person is shown, or nil.
func (f Found) Tool(who ferrule.Principal, name string) *ferrule.Tool {
	if f.Manifest == nil {
		return nil
	}
	tool := f.Manifest.Tool(name)
	if tool == nil || !who.CanCall(tool) || !f.Seen.Tool(f.Device, tool) {
		return nil
	}
	return tool
}

// Find returns a device that a person may see, by its ID or an earlier one.
func (a *API) Find(who ferrule.Principal, id string) (Found, error) {
	if a.parts.Find == nil || !who.Scopes.Has(ferrule.ScopeRead) {
		return Found{}, ferrule.UnknownDevice(id)
	}
	return a.parts.Find(who, id)
}

// CallInput selects a tool, with its arguments.
type CallInput struct {
	Device    string           `json:"device" jsonschema:"ID of the device"`
	Tool      string           `json:"tool" jsonschema:"name of the tool"`
	Arguments schema.AnyObject `json:"arguments,omitempty" jsonschema:"arguments of the tool"`
	Confirmed bool             `json:"confirmed,omitempty" jsonschema:"the person has confirmed a call that endangers something"`
	Timeout   ferrule.Duration `json:"timeout,omitempty" jsonschema:"limit of the call, with all waiting; default: as the tool or the gateway sets it"`
}

// CallOutput is the result of a call.
type CallOutput struct {
	Value   any               `json:"value,omitempty" jsonschema:"the answer, as the device gave it"`
	Content []ferrule.Content `json:"content,omitempty" jsonschema:"texts, images and other parts of the answer"`
	Text    string            `json:"text,omitempty" jsonschema:"description of a prompt"`
	Age     ferrule.Duration  `json:"age,omitempty" jsonschema:"time since the device gave the answer, if it is cached"`
	// Took is how long the call took.
	Took ferrule.Duration `json:"took" jsonschema:"duration of the call"`
}

// Call calls a tool of a device on behalf of a person.
func (a *API) Call(ctx context.Context, who ferrule.Principal, in CallInput) (CallOutput, error) {
	if found, err := a.Find(who, in.Device); err == nil && !in.Confirmed {
		if tool := found.Tool(who, in.Tool); tool != nil && tool.Effect == ferrule.Endangers {
			return CallOutput{}, ferrule.Errorf(ferrule.Denied, "%s of %s endangers something and needs confirmation", tool.Name, found.Device.ID).
				WithHint("check the arguments, then set confirmed to true")
		}
	}
	return a.call(ctx, &ferrule.Call{Principal: who, Client: Client, Device: in.Device, Tool: in.Tool, Args: ferruleArgs(in.Arguments), Timeout: in.Timeout})
}

// PromptInput selects a prompt, with its arguments.
type PromptInput struct {
	Device    string           `json:"device" jsonschema:"ID of the device"`
	Prompt    string           `json:"prompt" jsonschema:"name of the prompt"`
	Arguments schema.AnyObject `json:"arguments,omitempty" jsonschema:"arguments of the prompt; each is a string"`
}

// Prompt returns a prompt of a device, filled in.
func (a *API) Prompt(ctx context.Context, who ferrule.Principal, in PromptInput) (CallOutput, error) {
	return a.call(ctx, &ferrule.Call{Principal: who, Client: Client, Device: in.Device, Operation: ferrule.GetPrompt, Tool: in.Prompt, Args: ferruleArgs(in.Arguments)})
}

// call sends a call through the pipeline.
func (a *API) call(ctx context.Context, call *ferrule.Call) (CallOutput, error) {
	start := time.Now()
	result, err := a.parts.Handle(ctx, call)
	if err != nil {
		return CallOutput{}, err
	}
	out := CallOutput{Content: result.Content, Text: result.Text, Age: result.Age, Took: ferrule.Duration(time.Since(start))}
	if len(result.Value) > 0 {
		out.Value = result.Value
	}
	return out, nil
}

func ferruleArgs(args schema.AnyObject) []byte {
	if len(args) == 0 {
		return nil
	}
	return args
}

// Changes returns what a device offers and its owner has not accepted.
func (a *API) Changes(ctx context.Context, who ferrule.Principal, in builtin.DeviceChangesInput) (pinning.Report, error) {
	return Builtin[pinning.Report](ctx, a, who, "device_changes", in)
}

// Status returns the state of the device as lists of devices have it.
func (f Found) Status() string { return statusOfDevice(f.Device, f.Stopped) }
