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

// mostCompletions is how many values an answer may have.
const mostCompletions = 100

// complete answers completion/complete: for the parts of the gateway's own URIs, and
// for what devices can complete.
func (v *view) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	p := req.Params
	if p.Ref == nil || p.Argument.Name == "" {
		return nil, badParams("want a ref, and the name of an argument")
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

// completeOn has a device complete an argument of a prompt or a template of its own.
func (v *view) completeOn(ctx context.Context, device, name string, p *mcp.CompleteParams) (*mcp.CompleteResult, error) {
	if !v.can(device, ferrule.Complete) {
		return completed(nil, 0), nil
	}
	asked := ferrule.Completion{Template: p.Ref.Type == "ref/resource", Argument: p.Argument.Name, Value: p.Argument.Value}
	if p.Context != nil {
		asked.Context = p.Context.Arguments
	}
	args, err := json.Marshal(asked)
	if err != nil {
		return nil, badParams(err.Error())
	}
	result, err := v.front.handle(ctx, &ferrule.Call{Principal: caller(ctx), Device: device, Operation: ferrule.Complete, Tool: name, Args: args})
	if err != nil {
		return nil, requestError(v.advised(ferrule.AsError(err)))
	}
	var said ferrule.CompletionResult
	if err := json.Unmarshal(result.Value, &said); err != nil {
		return nil, requestError(ferrule.Errorf(ferrule.Failed, "%s did not answer with values: %w", device, err))
	}
	out := completed(said.Values, max(said.Total, 0))
	out.Completion.HasMore = said.More || len(said.Values) > mostCompletions
	return out, nil
}

// completed is the answer with as many values as it may have.
func completed(values []string, total int) *mcp.CompleteResult {
	values = append([]string{}, values[:min(mostCompletions, len(values))]...)
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: total, HasMore: total > len(values)}}
}

// completeOwn completes a part of the gateway's own URIs.
func (v *view) completeOwn(ctx context.Context, p *mcp.CompleteParams) *mcp.CompleteResult {
	if p.Argument.Name == "device" && v.device == "" {
		return completed(v.front.parts.Catalog.Complete(p.Argument.Value, mostCompletions))
	}
	var values []string
	for _, word := range v.completions(ctx, p) {
		if strings.HasPrefix(word, p.Argument.Value) {
			values = append(values, word)
		}
	}
	return completed(values, len(values))
}

// completions are what an argument can be, for the device that was said before.
func (v *view) completions(ctx context.Context, p *mcp.CompleteParams) []string {
	device := v.device
	if device == "" && p.Context != nil {
		device = p.Context.Arguments["device"]
	}
	var all []string
	switch p.Argument.Name {
	case "device":
		all = append(all, v.device)
	case "pin":
		if _, manifest, ok := v.front.parts.Catalog.Lookup(device); ok && manifest != nil {
			for _, pin := range manifest.Pins {
				all = append(all, strconv.Itoa(pin.Number))
			}
		}
	case "reading":
		for _, t := range v.readings(device) {
			all = append(all, t.Name)
		}
	case "signal":
		if _, _, ok := v.front.parts.Catalog.Lookup(device); ok && v.front.measures() {
			v.front.learn(ctx, device)
			all = append(all, v.front.signals.of(device)...)
		}
	case "uri":
		if _, manifest, ok := v.front.parts.Catalog.Lookup(device); ok && manifest != nil {
			for i := range manifest.Resources {
				if r := &manifest.Resources[i]; !r.Template {
					all = append(all, legal(r.URI, false))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
