package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// listPrompts answers prompts/list.
func (v *view) listPrompts(ctx context.Context, req *mcp.ListPromptsRequest) (*mcp.ListPromptsResult, error) {
	var cursor string
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	page, next, err := paged(v.prompts(v.seenBy(ctx)), func(p *mcp.Prompt) string { return p.Name }, cursor, pageBytes(ctx))
	if err != nil {
		return nil, err
	}
	return &mcp.ListPromptsResult{Prompts: page, NextCursor: next, Cacheable: uncached}, nil
}

// prompts returns the prompts of the first devices, sorted by name. Those of other
// devices are not listed, but can be used.
func (v *view) prompts(see catalog.View) []*mcp.Prompt {
	all, limit := []*mcp.Prompt{}, listedItems
	if v.device != "" {
		limit = ferrule.MaxItems
	}
	for _, dev := range v.devices(see) {
		if !v.can(dev.ID, ferrule.GetPrompt) {
			continue
		}
		list := see.Prompts
		if v.device != "" {
			list = see.PromptsOf
		}
		for _, p := range list(dev.ID) {
			if len(all) < limit {
				all = append(all, mcpPrompt(p))
			}
		}
	}
	slices.SortFunc(all, func(a, b *mcp.Prompt) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// mcpPrompt converts a prompt.
func mcpPrompt(p catalog.Prompt) *mcp.Prompt {
	out := &mcp.Prompt{Name: p.Name, Title: p.Title, Description: p.Text, Icons: icons(p.Icons)}
	for _, a := range p.Arguments {
		out.Arguments = append(out.Arguments, &mcp.PromptArgument{Name: a.Name, Title: a.Title, Description: a.Text, Required: a.Required})
	}
	return out
}

// addressPrompt returns the device and the prompt of a name.
func (v *view) addressPrompt(name string) (device, prompt string, err error) {
	if v.device != "" {
		return v.device, v.server.parts.Catalog.ResolvePromptOn(v.device, name), nil
	}
	return v.server.parts.Catalog.ResolvePrompt(name)
}

// getPrompt answers prompts/get.
func (v *view) getPrompt(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	device, prompt, err := v.addressPrompt(req.Params.Name)
	if err != nil {
		return nil, requestError(ferrule.AsError(err))
	}
	var args json.RawMessage
	if req.Params.Arguments != nil {
		if args, err = json.Marshal(req.Params.Arguments); err != nil {
			return nil, badParams(err.Error())
		}
	}
	call := &ferrule.Call{Principal: caller(ctx), Device: device, Operation: ferrule.GetPrompt, Tool: prompt, Args: args}
	result, open, err := v.call(ctx, req, req.Params.RequestState, req.Params.InputResponses, call, nil)
	if err != nil {
		return nil, v.callError(err)
	}
	if open != nil {
		out := promptResults.inputRequired
		out.InputRequests, out.RequestState = open.requests, open.state
		return &out, nil
	}
	out := promptResults.of(req.ProtocolVersion() >= mcphttp.StatelessVersion)
	out.Description, out.Messages = result.Text, v.messages(device, result)
	return &out, nil
}

// messages converts the content of a prompt.
func (v *view) messages(device string, r *ferrule.Result) []*mcp.PromptMessage {
	all := []*mcp.PromptMessage{}
	for _, c := range r.Content {
		role := mcp.Role("user") // the only other is assistant
		if c.Role == "assistant" {
			role = "assistant"
		}
		all = append(all, &mcp.PromptMessage{Role: role, Content: v.content(device, c)})
	}
	if r.Content == nil && len(r.Value) > 0 {
		all = append(all, &mcp.PromptMessage{Role: "user", Content: &mcp.TextContent{Text: text(plain(r.Value))}})
	}
	return all
}
