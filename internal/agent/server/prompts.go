package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// listPrompts answers prompts/list.
func (v *view) listPrompts(ctx context.Context, req *mcp.ListPromptsRequest) (*mcp.ListPromptsResult, error) {
	var cursor string
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	page, next, err := paged(v.prompts(), func(p *mcp.Prompt) string { return p.Name }, cursor, pageBytes(ctx))
	if err != nil {
		return nil, err
	}
	return &mcp.ListPromptsResult{Prompts: page, NextCursor: next, Cacheable: fresh}, nil
}

// prompts are those of the first devices, by name. Others can be got by theirs.
func (v *view) prompts() []*mcp.Prompt {
	all, most := []*mcp.Prompt{}, listedItems
	if v.device != "" {
		most = ferrule.MaxItems
	}
	for _, dev := range v.devices() {
		if !v.can(dev.ID, ferrule.GetPrompt) {
			continue
		}
		list := v.front.parts.Catalog.Prompts
		if v.device != "" {
			list = v.front.parts.Catalog.PromptsOf
		}
		for _, p := range list(dev.ID) {
			if len(all) < most {
				all = append(all, shownPrompt(p))
			}
		}
	}
	slices.SortFunc(all, func(a, b *mcp.Prompt) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// shownPrompt is a prompt in the words of MCP.
func shownPrompt(p catalog.Prompt) *mcp.Prompt {
	out := &mcp.Prompt{Name: p.Name, Title: p.Title, Description: p.Text, Icons: icons(p.Icons)}
	for _, a := range p.Arguments {
		out.Arguments = append(out.Arguments, &mcp.PromptArgument{Name: a.Name, Title: a.Title, Description: a.Text, Required: a.Required})
	}
	return out
}

// addressPrompt tells which prompt of which device a name means.
func (v *view) addressPrompt(name string) (device, prompt string, err error) {
	if v.device != "" {
		return v.device, v.front.parts.Catalog.ResolvePromptOn(v.device, name), nil
	}
	return v.front.parts.Catalog.ResolvePrompt(name)
}

// getPrompt answers prompts/get.
func (v *view) getPrompt(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	name, _ := ctx.Value(meantKey{}).(string)
	device, prompt, err := v.addressPrompt(name)
	if err != nil {
		return nil, requestError(ferrule.AsError(err))
	}
	args, err := json.Marshal(req.Params.Arguments)
	if err != nil {
		return nil, badParams(err.Error())
	}
	if req.Params.Arguments == nil {
		args = nil
	}
	call := &ferrule.Call{Principal: caller(ctx), Device: device, Operation: ferrule.GetPrompt, Tool: prompt, Args: args}
	result, open, err := v.take(ctx, req, req.Params.RequestState, req.Params.InputResponses, call)
	if err != nil {
		return nil, v.takeError(err)
	}
	if open != nil {
		return &mcp.GetPromptResult{InputRequests: open.requests, RequestState: open.state}, nil
	}
	return &mcp.GetPromptResult{Description: result.Text, Messages: v.messages(device, result)}, nil
}

// messages are what a prompt says.
func (v *view) messages(device string, r *ferrule.Result) []*mcp.PromptMessage {
	all := []*mcp.PromptMessage{}
	for _, c := range r.Content {
		role := mcp.Role("user") // there is one other
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
