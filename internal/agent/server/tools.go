package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// pageSize is the limit of entries in one page of a list.
const pageSize = 200

// emptySchema is the schema of a tool without arguments.
var emptySchema = json.RawMessage(`{"type":"object"}`)

// listTools answers tools/list.
func (v *view) listTools(ctx context.Context, req *mcp.ListToolsRequest) (*mcp.ListToolsResult, error) {
	var cursor string
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	p, size := profileOf(ctx), pageBytes(ctx)
	all := v.toolsFor(p, v.mcpTools(v.seenBy(ctx)))
	if size > 0 {
		all = brief(all, size)
	}
	if p.onePage {
		return &mcp.ListToolsResult{Tools: all, Cacheable: uncached}, nil
	}
	page, next, err := paged(all, func(t *mcp.Tool) string { return t.Name }, cursor, size)
	if err != nil {
		return nil, err
	}
	return &mcp.ListToolsResult{Tools: page, NextCursor: next, Cacheable: uncached}, nil
}

// paged returns the page of a list after a cursor, and the cursor of the next page. The
// list must be sorted by name. A page has at most size bytes, unless its only entry has
// more; 0 means no limit.
func paged[T any](all []T, name func(T) string, cursor string, size int) (page []T, next string, err error) {
	if cursor != "" {
		last, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil {
			return nil, "", badParams("unknown cursor: list again without one")
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

// mcpTools returns the list of tools in MCP. It is converted again only when the
// catalog has a new list, or one that somebody else sees.
func (v *view) mcpTools(see catalog.View) []*mcp.Tool {
	offers := v.list(see)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tools != nil && len(offers) == len(v.offers) && (len(offers) == 0 || &offers[0] == &v.offers[0]) {
		return v.tools
	}
	tools := make([]*mcp.Tool, len(offers))
	for i, o := range offers {
		tools[i] = mcpTool(o)
		tools[i].Meta = v.toolMeta(o)
		if v.device != "" && o.Tool.FullInput != nil { // as the device declares it
			tools[i].InputSchema = o.Tool.FullInput
		}
	}
	v.offers, v.tools = offers, tools
	return tools
}

// mcpTool converts an offer.
func mcpTool(o ferrule.Offer) *mcp.Tool {
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

// callTool answers tools/call. An unknown tool is an error of the request. Any other
// error is a result, so that a model can read it.
func (v *view) callTool(ctx context.Context, req *mcp.CallToolRequest) (mcp.Result, error) {
	call := &ferrule.Call{Principal: caller(ctx), Args: req.Params.Arguments}
	p, stateless := profileOf(ctx), req.ProtocolVersion() >= mcphttp.StatelessVersion
	var result *ferrule.Result
	var open *inputs
	err := v.address(call, req.Params.Name)
	if err == nil {
		if p.basic {
			v.coerce(ctx, call)
		}
		var plan *taskPlan
		if plan, err = v.planTask(ctx, req, call); err != nil {
			return answer(v.toolResult(p, stateless, req.Params.Name, call, nil, err))
		}
		if v.asksForTask(req) {
			return v.callAsTask(ctx, req, call, plan)
		}
		result, open, err = v.call(ctx, req, req.Params.RequestState, req.Params.InputResponses, call, plan)
	}
	if err != nil && v.asksForTask(req) { // it began nothing, and the client expects a task
		return nil, requestError(ferrule.AsError(err))
	}
	var running *stillRunning
	var task *becameTask
	switch {
	case errors.As(err, &task):
		return newTaskResult(task.Task(), "task"), nil
	case errors.As(err, &running):
		return running.result(stateless), nil
	case open != nil:
		out := callResults.inputRequired
		out.InputRequests, out.RequestState = open.requests, open.state
		return &out, nil
	}
	return answer(v.toolResult(p, stateless, req.Params.Name, call, result, err))
}

// toolResult converts the outcome of a call.
func (v *view) toolResult(p profile, stateless bool, name string, call *ferrule.Call, result *ferrule.Result, err error) (*mcp.CallToolResult, error) {
	switch {
	case err == nil && p.textOnly:
		return asText(v.succeeded(call.Device, result, stateless)), nil
	case err == nil:
		return v.succeeded(call.Device, result, stateless), nil
	case err == errState, err == errNeedsTasks:
		return nil, err
	}
	e := v.advised(ferrule.AsError(err))
	if p.textOnly {
		return asText(v.failed(call.Device, e, stateless)), nil
	}
	if e.Code == ferrule.NotFound && call.Target.Tool == nil && !v.isTool(name) {
		return nil, requestError(e)
	}
	if needsCapability(e) {
		return nil, missingCapability(e)
	}
	return v.failed(call.Device, e, stateless), nil
}

// isTool reports whether a name is that of a tool, whatever device its arguments name.
func (v *view) isTool(name string) bool {
	if v.device != "" {
		return false
	}
	_, err := v.server.parts.Catalog.All().Offer(name)
	return err == nil
}

// address sets the device and tool of a call.
func (v *view) address(call *ferrule.Call, name string) (err error) {
	if v.device != "" {
		call.Device, call.Tool = v.device, v.server.parts.Catalog.ResolveOn(v.device, name)
		return nil
	}
	call.Device, call.Tool, call.Args, err = v.server.parts.Catalog.Resolve(name, call.Args)
	return err
}

// errStopping is why calls are cancelled when the gateway stops.
var errStopping error = stopping{}

// stopping is the type of errStopping. Jobs of devices go on.
type stopping struct{}

func (stopping) Error() string { return "the gateway is stopping" }

func (stopping) Is(target error) bool { return target == ferrule.ErrKeepJob }

// begin counts a call, unless the server is stopping. The caller must call
// s.calls.Done.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop.Err() != nil {
		return false
	}
	s.calls.Add(1)
	return true
}

// handle sends a call down the pipeline, unless the server is stopping.
func (s *Server) handle(ctx context.Context, call *ferrule.Call) (result *ferrule.Result, err error) {
	if !s.begin() {
		return nil, ferrule.Errorf(ferrule.Cancelled, "%w", errStopping)
	}
	defer s.calls.Done()
	growStack(len(call.Tool))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.stop, func() { cancel(errStopping) })
	defer stop()
	defer func() {
		if r := recover(); r != nil {
			result, err = nil, ferrule.Errorf(ferrule.Internal, "the gateway failed at this call: %v", r).AfterSend()
			s.parts.Log.Error("call panicked", "device", call.Device, "tool", call.Tool, "err", fmt.Sprint(r))
		}
	}()
	call.Parent, call.Client, call.Session = parent(ctx), client(ctx), s.sessionOf(ctx)
	return s.parts.Handle(ctx, call)
}

// growStack makes the stack of this new goroutine as large as the pipeline needs it.
// Otherwise it would be copied several times on the way, which took 50 µs of a call.
//
//go:noinline
func growStack(i int) byte {
	var frame [16 << 10]byte
	return frame[i%len(frame)]
}
