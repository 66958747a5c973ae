package mcpserver

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
)

// offerTools puts the tools that were declared where the SDK finds them. Those for
// people are not among them: MCP has no word that keeps models from them.
func (d *Device) offerTools() {
	for _, t := range d.Tools() {
		if !t.UserOnly {
			d.server.AddTool(listed(t), d.callTool)
		}
	}
}

// listed is a tool as callers see it. What nothing was said about is left out, so
// that nobody takes it for an answer.
func listed(t thing.Description) *mcp.Tool {
	tool := &mcp.Tool{Name: t.Name, Title: t.Title, Description: t.Text, InputSchema: t.Schema}
	if t.Output != nil {
		tool.OutputSchema = t.Output
	}
	if t.Reads || t.Idempotent || t.Endangers {
		tool.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: t.Reads, IdempotentHint: t.Idempotent}
	}
	if t.Endangers {
		tool.Annotations.DestructiveHint = &t.Endangers
	}
	return tool
}

// callTool answers tools/call.
func (d *Device) callTool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name, args := req.Params.Name, req.Params.Arguments
	c := newCall(req)
	c.subject = subjectOf(req, "tools/call", name, args)
	if err := d.resume(c, req.Params.RequestState, req.Params.InputResponses); err != nil {
		return nil, err
	}
	var result any
	ask, err := d.rounds(ctx, c, func(ctx context.Context) error {
		return d.inTurn(ctx, func(ctx context.Context) (err error) {
			result, err = d.Call(ctx, name, args)
			return err
		})
	})
	switch {
	case err != nil:
		return failed(err)
	case ask != nil:
		return &mcp.CallToolResult{InputRequests: ask.requests, RequestState: ask.state}, nil
	}
	return told(result)
}

// inTurn does something when its turn has come. What is under way ends with serving,
// and what waits is not begun.
func (d *Device) inTurn(ctx context.Context, do func(context.Context) error) error {
	stop := d.halting.current()
	if err := d.lane.enter(ctx, stop); err != nil {
		return err
	}
	defer d.lane.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, cancel)()
	return do(ctx)
}

// serverError is the code of errors that JSON-RPC has no other for.
const serverError = -32000

// failed is an error as callers see it: one of the request if nothing was tried, and
// a result otherwise.
func failed(err error) (*mcp.CallToolResult, error) {
	if e := untried(err); e != nil {
		return nil, e
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
}

// untried is the error of a request after which nothing was tried; nil if something
// may have been.
func untried(err error) error {
	var refused *thing.RefusedError
	var request *jsonrpc.Error
	switch {
	case errors.As(err, &refused):
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: refused.Reason}
	case errors.Is(err, errBusy):
		return &jsonrpc.Error{Code: serverError, Message: err.Error()}
	case errors.As(err, &request):
		return request
	}
	return nil
}
