package server

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxCompletions is MCP's limit of values in a result.
const maxCompletions = 100

// complete answers completion/complete, for the gateway's own URIs and for prompts and
// templates of devices.
func (v *view) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	p := req.Params
	if p.Ref == nil || p.Argument.Name == "" {
		return nil, badParams("ref and argument.name are required")
	}
	isOwn := func(t *mcp.ResourceTemplate) bool { return t.URITemplate == p.Ref.URI }
	switch {
	case p.Ref.Type == "ref/prompt":
		device, prompt, err := v.addressPrompt(p.Ref.Name)
		if err != nil {
			return nil, requestError(ferrule.AsError(err))
		}
		return v.completeOn(ctx, device, prompt, p)
	case slices.ContainsFunc(ownTemplates, isOwn) || isOwn(anyTemplate) || isOwn(signalTemplate):
		return v.completeOwn(ctx, p), nil
	}
	if device, own, ok := v.located(p.Ref.URI); ok {
		return v.completeOn(ctx, device, own, p)
	}
	return completed(nil, 0), nil
}

// completeOn asks a device to complete an argument of its prompt or template.
func (v *view) completeOn(ctx context.Context, device, name string, p *mcp.CompleteParams) (*mcp.CompleteResult, error) {
	if !v.can(device, ferrule.Complete) {
		return completed(nil, 0), nil
	}
	completion := ferrule.Completion{Template: p.Ref.Type == "ref/resource", Argument: p.Argument.Name, Value: p.Argument.Value}
	if p.Context != nil {
		completion.Context = p.Context.Arguments
	}
	args, err := json.Marshal(completion)
	if err != nil {
		return nil, badParams(err.Error())
	}
	result, err := v.server.handle(ctx, &ferrule.Call{Principal: caller(ctx), Device: device, Operation: ferrule.Complete, Tool: name, Args: args})
	if err != nil {
		return nil, requestError(v.advised(ferrule.AsError(err)))
	}
	var values ferrule.CompletionResult
	if err := json.Unmarshal(result.Value, &values); err != nil {
		return nil, requestError(ferrule.Errorf(ferrule.Failed, "invalid completion from %s: %w", device, err))
	}
	out := completed(values.Values, max(values.Total, 0))
	out.Completion.HasMore = values.More || len(values.Values) > maxCompletions
	return out, nil
}

// completed returns a result with the first values.
func completed(values []string, total int) *mcp.CompleteResult {
	values = append([]string{}, values[:min(maxCompletions, len(values))]...)
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: total, HasMore: total > len(values)}}
}

// completeOwn completes an argument of the gateway's own URIs.
func (v *view) completeOwn(ctx context.Context, p *mcp.CompleteParams) *mcp.CompleteResult {
	if p.Argument.Name == "device" && v.device == "" {
		return completed(v.server.seenBy(ctx).Complete(p.Argument.Value, maxCompletions))
	}
	var values []string
	for _, word := range v.completions(ctx, p) {
		if strings.HasPrefix(word, p.Argument.Value) {
			values = append(values, word)
		}
	}
	return completed(values, len(values))
}

// completions returns all values of an argument, for the device in another argument.
func (v *view) completions(ctx context.Context, p *mcp.CompleteParams) []string {
	device := v.device
	if device == "" && p.Context != nil {
		device = p.Context.Arguments["device"]
	}
	var all []string
	see := v.server.seenBy(ctx)
	switch p.Argument.Name {
	case "device":
		all = append(all, v.device)
	case "pin":
		if _, manifest, ok := see.Lookup(device); ok && manifest != nil {
			for _, pin := range manifest.Pins {
				all = append(all, strconv.Itoa(pin.Number))
			}
		}
	case "reading":
		for _, t := range readings(see, device) {
			all = append(all, t.Name)
		}
	case "signal":
		if _, _, ok := see.Lookup(device); ok && v.server.measures() {
			v.server.updateSignals(ctx, device)
			all = append(all, v.server.signals.of(device)...)
		}
	case "uri":
		if _, manifest, ok := see.Lookup(device); ok && manifest != nil {
			for i := range manifest.Resources {
				if r := &manifest.Resources[i]; !r.Template && see.Shows(device, ferrule.ReadResource, r.URI) {
					all = append(all, escapeURI(r.URI, false))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
