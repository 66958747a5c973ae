package mcpserver

import (
	"context"
	"encoding/json"
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
	result, err := d.runTool(ctx, req.Params.Name, req.Params.Arguments)
	if err != nil {
		return failed(err)
	}
	return told(result)
}

// runTool calls a tool when its turn has come.
func (d *Device) runTool(ctx context.Context, name string, args json.RawMessage) (any, error) {
	if err := d.lane.enter(ctx); err != nil {
		return nil, err
	}
	defer d.lane.leave()
	ctx, end := d.halting.bind(ctx)
	defer end()
	return d.Call(ctx, name, args)
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
