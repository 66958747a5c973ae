package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// pageSize is how many entries of a list are told at once.
const pageSize = 200

// emptySchema is the schema of a tool that takes nothing.
var emptySchema = json.RawMessage(`{"type":"object"}`)

// listTools answers tools/list.
func (v *view) listTools(ctx context.Context, req *mcp.ListToolsRequest) (*mcp.ListToolsResult, error) {
	var cursor string
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	all, size := v.shown(), pageBytes(ctx)
	if size > 0 {
		all = brief(all, size)
	}
	page, next, err := paged(all, func(t *mcp.Tool) string { return t.Name }, cursor, size)
	if err != nil {
		return nil, err
	}
	return &mcp.ListToolsResult{Tools: page, NextCursor: next, Cacheable: fresh}, nil
}

// paged is the part of a list, which is ordered by name, that follows a cursor,
// and the cursor of what follows that. It takes at most size bytes, unless one entry
// alone takes more; 0 does not bound it.
func paged[T any](all []T, name func(T) string, cursor string, size int) (page []T, next string, err error) {
	if cursor != "" {
		last, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil {
			return nil, "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one that was told here"}
		}
		first, found := slices.BinarySearchFunc(all, string(last), func(t T, last string) int { return strings.Compare(name(t), last) })
		if found {
			first++
		}
		all = all[first:]
	}
	n := min(len(all), pageSize)
	if size > 0 {
		n = fitting(all[:n], size)
	}
	page = append([]T{}, all[:n]...)
	if n < len(all) {
		next = base64.RawURLEncoding.EncodeToString([]byte(name(page[n-1])))
	}
	return page, next, nil
}

// shown is the list as the SDK wants it, made anew only when it is another.
func (v *view) shown() []*mcp.Tool {
	offers := v.list()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tools != nil && len(offers) == len(v.offers) && (len(offers) == 0 || &offers[0] == &v.offers[0]) {
		return v.tools
	}
	tools := make([]*mcp.Tool, len(offers))
	for i, o := range offers {
		tools[i] = tool(o)
		if v.device != "" && o.Tool.FullInput != nil { // as the device has it
			tools[i].InputSchema = o.Tool.FullInput
		}
	}
	v.offers, v.tools = offers, tools
	return tools
}

// tool is an offer in the words of MCP.
func tool(o ferrule.Offer) *mcp.Tool {
	endangers, world := o.Tool.Effect == ferrule.Endangers, false
	t := &mcp.Tool{
		Name: o.Name, Title: o.Tool.Title, Description: o.Text, InputSchema: o.Input, Icons: icons(o.Tool.Icons),
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint:    o.Tool.Effect == ferrule.Reads,
			DestructiveHint: &endangers,
			IdempotentHint:  o.Tool.Repeatable(),
			OpenWorldHint:   &world,
		},
	}
	if len(o.Tool.Output) > 0 {
		t.OutputSchema = o.Tool.Output
	}
	return t
}

// callTool answers tools/call. That there is no tool of that name is an error of
// the request; anything else is told as the outcome of the call, so that a model
// can read it.
func (v *view) callTool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	call := &ferrule.Call{Principal: caller(ctx), Args: req.Params.Arguments}
	name, _ := ctx.Value(meantKey{}).(string)
	var result *ferrule.Result
	var open *inputs
	err := v.address(call, name)
	if err == nil {
		result, open, err = v.take(ctx, req, req.Params.RequestState, req.Params.InputResponses, call)
	}
	switch {
	case open != nil:
		return &mcp.CallToolResult{InputRequests: open.requests, RequestState: open.state}, nil
	case err == nil:
		return v.succeeded(call.Device, result, req.ProtocolVersion() >= modernVersion), nil
	case err == errState:
		return nil, err
	}
	e := v.advised(ferrule.AsError(err))
	if e.Code == ferrule.NotFound && call.Target.Tool == nil && !v.knows(name) {
		return nil, requestError(e)
	}
	if lacks(e) {
		return nil, lacking(e)
	}
	return v.failed(call.Device, e), nil
}

// knows tells whether a name means a tool, whatever its arguments name.
func (v *view) knows(name string) bool {
	if v.device != "" {
		return false
	}
	_, err := v.front.parts.Catalog.Offer(name)
	return err == nil
}

// address tells a call which tool of which device is meant.
func (v *view) address(call *ferrule.Call, name string) (err error) {
	if v.device != "" {
		call.Device, call.Tool = v.device, v.front.parts.Catalog.ResolveOn(v.device, name)
		return nil
	}
	call.Device, call.Tool, call.Args, err = v.front.parts.Catalog.Resolve(name, call.Args)
	return err
}

// errStopping is why calls are cancelled when the gateway ends.
var errStopping = errors.New("the gateway is being stopped")

// begin counts a call, which ends with Done; it is false once the front is being
// stopped.
func (f *Server) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop.Err() != nil {
		return false
	}
	f.calls.Add(1)
	return true
}

// handle takes the road, unless the front is being stopped.
func (f *Server) handle(ctx context.Context, call *ferrule.Call) (result *ferrule.Result, err error) {
	if !f.begin() {
		return nil, ferrule.Errorf(ferrule.Cancelled, "%w", errStopping)
	}
	defer f.calls.Done()
	deepen(len(call.Tool))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(f.stop, func() { cancel(errStopping) })
	defer stop()
	defer func() {
		if r := recover(); r != nil {
			result, err = nil, ferrule.Errorf(ferrule.Internal, "the gateway failed at this call: %v", r).AfterSend()
			f.parts.Log.Error("a call of an agent panicked", "device", call.Device, "tool", call.Tool, "err", fmt.Sprint(r))
		}
	}()
	call.Parent = parent(ctx)
	return f.parts.Handle(ctx, call)
}

// deepen makes the stack of this goroutine, which is a new one, as large as the road needs
// it: it would be copied again and again on the way, each time with more on it, which took
// 50 µs of a call.
//
//go:noinline
func deepen(i int) byte {
	var room [16 << 10]byte
	return room[i%len(room)]
}
