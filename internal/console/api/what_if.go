package api

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
)

// WhatIfInput is a call that is not made, as a person types it.
type WhatIfInput struct {
	Who, Device, Tool string
	// Arguments are words such as `seconds=30` and `on:=true`, as on the command line, or one
	// JSON object.
	Arguments string
}

// maxArguments limits the arguments that a person types, in bytes.
const maxArguments = 16 << 10

// WhatIf is ExplainPolicy for a call that a person types.
func (a *API) WhatIf(ctx context.Context, who ferrule.Principal, in WhatIfInput) (builtin.ExplainPolicyOutput, error) {
	text := strings.TrimSpace(in.Arguments)
	if len(text) > maxArguments {
		return builtin.ExplainPolicyOutput{}, ferrule.Errorf(ferrule.Invalid, "the arguments have %d bytes; limit is %d", len(text), maxArguments)
	}
	args := json.RawMessage(text)
	if !strings.HasPrefix(text, "{") {
		var err error
		if args, err = arguments.Parse(strings.Fields(text), a.parts.Agents.Input(who, in.Device, in.Tool)); err != nil {
			return builtin.ExplainPolicyOutput{}, ferrule.Errorf(ferrule.Invalid, "%w", err)
		}
	}
	if !json.Valid(args) {
		return builtin.ExplainPolicyOutput{}, ferrule.Errorf(ferrule.Invalid, "the arguments are not a JSON object")
	}
	return a.ExplainPolicy(ctx, who, builtin.ExplainPolicyInput{Who: in.Who, Device: in.Device, Tool: in.Tool, Arguments: builtin.Arguments(args)})
}

// WhatIfNames returns names of agents and devices that a person may ask about, at most limit
// of each.
func (a *API) WhatIfNames(who ferrule.Principal, limit int) (agents, devices []string) {
	names := make(map[string]bool)
	for _, g := range a.allAgents() {
		names[g.Name] = true
	}
	rules := a.parts.Rules.Rules()
	for _, preset := range rules.Agents {
		names[preset.Agent] = true
	}
	for _, group := range rules.Groups {
		for _, member := range group.Members {
			names[member] = true
		}
	}
	names[who.String()] = true
	agents = slices.Sorted(maps.Keys(names))
	for _, d := range a.parts.Agents.Devices(who, limit) {
		devices = append(devices, d.ID)
	}
	return agents[:min(len(agents), limit)], devices
}

// WhatIfTools returns the names of a device's tools, at most limit.
func (a *API) WhatIfTools(who ferrule.Principal, device string, limit int) (names []string) {
	if device == "" {
		return nil
	}
	offers, _ := a.parts.Agents.Offers(who, device)
	for _, o := range offers[:min(len(offers), limit)] {
		names = append(names, o.Tool.Name)
	}
	return names
}
