package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
)

// listed converts a tool. Hints that the device does not declare are left out.
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
	if t.Poll > 0 {
		tool.Meta = mcp.Meta{Polling: map[string]any{"interval_ms": t.Poll.Milliseconds()}}
	}
	if t.Pins != nil {
		tool.Meta = mcp.Meta{Pins: t.Pins}
	}
	return tool
}

// Keys in the _meta of a tool. MCP has no fields for these.
const (
	// Polling says how often the tool wants to be called: {"interval_ms":1000}.
	Polling = "ferrule/polling"
	// Pins lists the pins that the tool works on, as [thing.PinInfo].
	Pins = "ferrule/pins"
)

// callTool answers tools/call.
func (d *Device) callTool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name, args := req.Params.Name, req.Params.Arguments
	c := newCall(req, "tools/call", name, args)
	if err := d.resume(c, req.Params.RequestState, req.Params.InputResponses, d.groups.endangers(name)); err != nil {
		return nil, err
	}
	var result any
	ask, err := d.rounds(ctx, c, func(ctx context.Context) error {
		return d.inTurn(ctx, func(ctx context.Context) (err error) {
			result, err = d.run(ctx, name, args)
			return err
		})
	})
	if ask != nil && err == nil {
		return &mcp.CallToolResult{InputRequests: ask.requests, RequestState: ask.state}, nil
	}
	if d.statistics.ended(err); err != nil {
		return failed(err)
	}
	return toolResult(result), nil
}

// run calls a tool, or returns its cached result. It is called in the lane.
func (d *Device) run(ctx context.Context, name string, args json.RawMessage) (result any, err error) {
	if d.groups.hidden(name) {
		return nil, &thing.RefusedError{Reason: "Unknown tool: " + name}
	}
	if err := d.allowed(ctx, name, args); err != nil {
		return nil, err
	}
	start := time.Now()
	result, cached, keep := d.cache.get(name, args)
	if !cached {
		defer func() { d.statistics.ran(time.Since(start)) }()
		if d.slow[name] != quickTool {
			ctx = detached(ctx)
		}
		if result, err = d.Call(ctx, name, args); err == nil {
			if result, err = frozen(result); err != nil {
				err = fmt.Errorf("%s has run, but its result cannot be encoded: %w", name, err)
			}
		}
	}
	if errors.Is(err, errAsked) {
		return nil, err
	}
	if err == nil && keep != nil && !callOf(ctx).asks {
		keep(result)
	}
	d.runAfter(ctx, Outcome{Tool: name, Args: args, Took: time.Since(start), Err: err, Cached: cached})
	return result, err
}

// turnKey is the context key of the function that ends a turn.
type turnKey struct{}

// inTurn runs a function in the lane. When serving ends, it is cancelled, or is not
// begun.
func (d *Device) inTurn(ctx context.Context, do func(context.Context) error) error {
	stop := d.halting.current()
	if err := d.lane.enter(ctx, stop); err != nil {
		return err
	}
	leave := sync.OnceFunc(d.lane.leave)
	defer leave()
	var isDetached atomic.Bool
	defer func() {
		if isDetached.Load() {
			<-d.detached
		}
	}()
	ctx = context.WithValue(ctx, turnKey{}, sync.OnceValue(func() bool {
		select {
		case d.detached <- struct{}{}:
			isDetached.Store(true)
			leave()
			return true
		default: // too many: it keeps its turn
			return false
		}
	}))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, cancel)()
	return do(ctx)
}

// Untried is the key in the _meta of an error result that says that the tool did not
// try: nothing has moved. MCP has no field for that.
const Untried = "ferrule/untried"

// failed converts an error to a result.
func failed(err error) (*mcp.CallToolResult, error) {
	var request *jsonrpc.Error
	if errors.As(err, &request) {
		return nil, request
	}
	result := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}
	var refused *thing.RefusedError
	if errors.As(err, &refused) {
		if refused.Arguments != nil {
			return nil, invalidArguments(refused)
		}
		result.Meta = mcp.Meta{Untried: true}
	}
	return result, nil
}

// invalidArguments is the error of a request whose arguments are wrong. It names all of
// them, so that the caller can correct them at once.
func invalidArguments(refused *thing.RefusedError) error {
	data, err := json.Marshal(map[string]any{"arguments": refused.Arguments})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: refused.Reason + "; nothing was done", Data: data}
}

// requestError converts an error to that of a request, for methods whose results cannot
// be errors.
func requestError(err error) error {
	var refused *thing.RefusedError
	var request *jsonrpc.Error
	switch {
	case errors.As(err, &request):
		return request
	case errors.As(err, &refused):
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: refused.Reason}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
}
