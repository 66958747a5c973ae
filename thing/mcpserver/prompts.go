package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
)

// Prompt is a text that a user can give a model, made by the device.
type Prompt struct {
	Name, Title, Text string
	Icons             []Icon
	Arguments         []Argument
}

// Argument is what a prompt is made of.
type Argument struct {
	Name, Title, Text string
	Required          bool
	// Complete suggests values; nil if it cannot.
	Complete Completer
}

// Message is a part of a prompt.
type Message struct {
	// Role is who says it: user or assistant.
	Role string
	// Content is a text, a Picture, a Sound or a Document; anything else is told as
	// JSON.
	Content any
}

// Prompt declares a prompt, or another one of that name. Get is called when its turn
// has come, like a tool.
func (d *Device) Prompt(p Prompt, get func(ctx context.Context, args map[string]string) ([]Message, error)) {
	prompt := &mcp.Prompt{Name: p.Name, Title: p.Title, Description: p.Text, Icons: icons(p.Icons)}
	complete := make(map[string]Completer)
	for _, a := range p.Arguments {
		prompt.Arguments = append(prompt.Arguments, &mcp.PromptArgument{Name: a.Name, Title: a.Title, Description: a.Text, Required: a.Required})
		complete[a.Name] = a.Complete
	}
	d.completers.set("prompt "+p.Name, complete)
	d.server.AddPrompt(prompt, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return d.getPrompt(ctx, req, p, get)
	})
}

// getPrompt answers prompts/get.
func (d *Device) getPrompt(ctx context.Context, req *mcp.GetPromptRequest, p Prompt, get func(context.Context, map[string]string) ([]Message, error)) (*mcp.GetPromptResult, error) {
	if err := p.check(req.Params.Arguments); err != nil {
		return nil, requestError(err)
	}
	args, err := json.Marshal(req.Params.Arguments)
	if err != nil {
		return nil, requestError(err)
	}
	c := newCall(req, "prompts/get", p.Name, args)
	if err := d.resume(c, req.Params.RequestState, req.Params.InputResponses, false); err != nil {
		return nil, err
	}
	var messages []Message
	ask, err := d.rounds(ctx, c, func(ctx context.Context) error {
		return d.inTurn(ctx, func(ctx context.Context) (err error) {
			if messages, err = get(ctx, req.Params.Arguments); err != nil {
				return err
			}
			messages = slices.Clone(messages) // they may be the same every time
			for i, m := range messages {
				if messages[i].Content, err = frozen(m.Content); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, requestError(err)
	}
	if ask != nil {
		return &mcp.GetPromptResult{InputRequests: ask.requests, RequestState: ask.state}, nil
	}
	result := &mcp.GetPromptResult{Description: p.Text, Messages: make([]*mcp.PromptMessage, 0, len(messages))}
	for _, m := range messages {
		for _, part := range partsOf(m.Content) {
			result.Messages = append(result.Messages, &mcp.PromptMessage{Role: mcp.Role(m.Role), Content: contentOf(part)})
		}
	}
	return result, nil
}

// check tells what is wrong with the arguments of a prompt.
func (p Prompt) check(args map[string]string) error {
	for _, a := range p.Arguments {
		if _, ok := args[a.Name]; a.Required && !ok {
			return &thing.RefusedError{Reason: fmt.Sprintf("the prompt %s needs %s", p.Name, a.Name)}
		}
	}
	for name := range args {
		if !slices.ContainsFunc(p.Arguments, func(a Argument) bool { return a.Name == name }) {
			return &thing.RefusedError{Reason: fmt.Sprintf("the prompt %s knows no %s", p.Name, name)}
		}
	}
	return nil
}
