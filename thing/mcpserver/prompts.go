package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
)

// Prompt is a prompt that the device makes, for a user to give to a model.
type Prompt struct {
	Name, Title, Text string
	Icons             []Icon
	Arguments         []Argument
}

// Argument is an argument of a prompt.
type Argument struct {
	Name, Title, Text string
	Required          bool
	// Complete suggests values; nil for none.
	Complete Completer
}

// Message is a message of a prompt.
type Message struct {
	// Role is user or assistant.
	Role string
	// Content is a string, a Picture, a Sound or a Document. Any other value is
	// encoded as JSON.
	Content any
}

// Prompt declares or replaces a prompt. Get is called in the lane, like a tool.
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
			messages = slices.Clone(messages) // get may return the same slice every time
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

// check returns an error if the arguments of a prompt are invalid.
func (p Prompt) check(args map[string]string) error {
	for _, a := range p.Arguments {
		if _, ok := args[a.Name]; a.Required && !ok {
			return &thing.RefusedError{Reason: fmt.Sprintf("prompt %s: argument %s is required", p.Name, a.Name)}
		}
	}
	for name := range args {
		if !slices.ContainsFunc(p.Arguments, func(a Argument) bool { return a.Name == name }) {
			return &thing.RefusedError{Reason: fmt.Sprintf("prompt %s: unknown argument %s", p.Name, name)}
		}
	}
	return nil
}
