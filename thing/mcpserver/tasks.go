package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/thing"
)

// A call of a client that knows tasks becomes one if it takes long. Its request then ends with
// the ID of the task, and the tool goes on. Other clients wait.

// tasksExtension is the extension of MCP for calls that outlive their requests.
const tasksExtension = "io.modelcontextprotocol/tasks"

// Slow says that tools take longer than a caller likes to wait, for example a 3D print. Each
// detaches itself when it begins; see [Detach]. It must be called before the device is served.
func (d *Device) Slow(tools ...string) {
	for _, name := range tools {
		d.slow[name] = slowTool
	}
}

// TaskOnly is Slow, and refuses callers that do not know tasks: a caller cannot wait for so
// long.
func (d *Device) TaskOnly(tools ...string) {
	for _, name := range tools {
		d.slow[name] = taskOnlyTool
	}
}

// slowness is how long a tool takes.
type slowness int

const (
	quickTool slowness = iota
	slowTool
	taskOnlyTool
)

// Detach says that the tool that calls it takes long from here on. Its turn ends, so that
// other tools can be called meanwhile, and the tool must lock what it shares with them. A
// caller that knows tasks gets a handle, and asks for the result later: progress becomes the
// status of the task, Ask still works, and ctx ends when the caller cancels the task. Other
// callers wait.
func Detach(ctx context.Context) {
	if leave, ok := ctx.Value(turnKey{}).(func() bool); ok && leave() {
		thing.EndTurn(ctx)
	}
	if t := taskOf(ctx); t != nil {
		t.promote()
	}
}

// detached returns the context of a tool that takes long from its beginning.
func detached(ctx context.Context) context.Context {
	Detach(ctx)
	if leave, ok := ctx.Value(turnKey{}).(func() bool); ok && leave() {
		ctx = thing.WithoutTurn(ctx)
	}
	return ctx
}

// The methods of the extension.
const (
	getTask    = "tasks/get"
	updateTask = "tasks/update"
	cancelTask = "tasks/cancel"
)

// taskParams are the parameters of all methods of the extension.
type taskParams struct {
	mcp.ParamsBase
	TaskID    string                     `json:"taskId"`
	Responses map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

type taskRequest = mcp.ServerRequest[*taskParams]

// taskResult is a task in MCP.
type taskResult struct {
	mcp.ResultBase
	Type      string              `json:"resultType"`
	ID        string              `json:"taskId"`
	Status    string              `json:"status"`
	Message   string              `json:"statusMessage,omitempty"`
	Created   time.Time           `json:"createdAt"`
	Updated   time.Time           `json:"lastUpdatedAt"`
	TTL       int64               `json:"ttlMs"`
	Poll      int64               `json:"pollIntervalMs"`
	Questions mcp.InputRequestMap `json:"inputRequests,omitempty"`
	Result    json.RawMessage     `json:"result,omitempty"`
	Error     *jsonrpc.Error      `json:"error,omitempty"`
}

// doneResult is the answer to methods without a result.
type doneResult struct {
	mcp.ResultBase
	Type string `json:"resultType"`
}

var (
	errNeedsTasks error = &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: "this needs a client with the extension " + tasksExtension + ": nothing was done",
		Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
	// errUnknownTask does not say whether the task belongs to somebody else.
	errUnknownTask error = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown task: there is none with this ID, or it has expired"}
)

// addTaskMethods makes the SDK decode the methods of the extension. The middleware answers
// them.
func (d *Device) addTaskMethods() {
	for _, method := range []string{getTask, updateTask, cancelTask} {
		err := mcp.AddReceivingCustomMethod(d.server, method, func(context.Context, *mcp.ServerSession, *taskParams) (*taskResult, error) {
			return nil, errors.New("not answered by the middleware")
		})
		if err != nil {
			panic(err) // the SDK has the method itself
		}
	}
}

// clientRequest is the part of a request that says what its client can do.
type clientRequest interface {
	ClientCapabilities() *mcp.ClientCapabilities
	ProtocolVersion() string
}

// knowsTasks reports whether the client of a request can handle tasks.
func knowsTasks(req clientRequest) bool {
	can := req.ClientCapabilities()
	if req.ProtocolVersion() < mcphttp.StatelessVersion || can == nil {
		return false
	}
	_, declared := can.Extensions[tasksExtension]
	return declared
}

// withTasks is a receiving middleware.
func (d *Device) withTasks(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch req := req.(type) {
		case *mcp.CallToolRequest:
			switch {
			case knowsTasks(req):
				return d.callTask(ctx, method, req, next)
			case d.slow[req.Params.Name] == taskOnlyTool:
				return nil, errNeedsTasks
			}
		case *taskRequest:
			return d.receiveTask(method, req)
		}
		result, err := next(ctx, method, req)
		if r, ok := result.(*mcp.InitializeResult); ok && r.Capabilities != nil { // of a version without the extension
			without := *r.Capabilities
			without.Extensions = maps.Clone(without.Extensions)
			delete(without.Extensions, tasksExtension)
			r.Capabilities = &without
		}
		return result, err
	}
}

// callTask calls a tool for a client that knows tasks.
func (d *Device) callTask(ctx context.Context, method string, req *mcp.CallToolRequest, next mcp.MethodHandler) (mcp.Result, error) {
	running, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxTaskTime)
	t := d.tasks.begin(ownerOf(req), cancel)
	defer context.AfterFunc(ctx, t.abandon)()
	halt := context.AfterFunc(d.halting.current(), cancel)
	go func() {
		defer cancel()
		defer halt()
		result, err := d.recoverPanics(next)(context.WithValue(running, taskKey{}, t), method, req)
		t.end(result, err)
	}()
	timer := time.NewTimer(d.config.TaskAfter)
	defer timer.Stop()
	select {
	case <-t.over:
	case <-t.promoted:
	case <-timer.C:
		t.promote()
	}
	if !t.isTask() {
		<-t.over
		return t.result, t.err
	}
	return t.show("task"), nil
}

// receiveTask answers a request about a task.
func (d *Device) receiveTask(method string, req *taskRequest) (mcp.Result, error) {
	switch {
	case req.ProtocolVersion() < mcphttp.StatelessVersion:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", method)}
	case !knowsTasks(req):
		return nil, errNeedsTasks
	case req.Params == nil:
		return nil, errUnknownTask
	}
	t := d.tasks.find(req.Params.TaskID, ownerOf(req))
	if t == nil {
		return nil, errUnknownTask
	}
	switch method {
	case updateTask:
		t.answer(req.Params.Responses)
	case cancelTask:
		t.stop()
	default:
		return t.show("complete"), nil
	}
	return &doneResult{Type: "complete"}, nil
}

// ownerOf returns who makes a request, by its token.
func ownerOf(req mcp.Request) string {
	if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil {
		return extra.TokenInfo.UserID
	}
	return ""
}

// nameHeader is the header with the ID of the task that a request is about. The SDK checks it
// for its own methods only.
const nameHeader = "Mcp-Name"

// checkTaskName refuses a request whose header names another task.
func checkTaskName(_ http.Header, r *http.Request, body []byte) (status int, code int64, reason string) {
	name := r.Header.Get(nameHeader)
	if name == "" || r.Header.Get(mcphttp.VersionHeader) < mcphttp.StatelessVersion {
		return 0, 0, ""
	}
	var request struct {
		Method string `json:"method"`
		Params struct {
			TaskID string `json:"taskId"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &request) != nil || !slices.Contains([]string{getTask, updateTask, cancelTask}, request.Method) || name == request.Params.TaskID {
		return 0, 0, "" // the SDK says what else is wrong
	}
	return http.StatusBadRequest, mcp.CodeHeaderMismatch, "the header " + nameHeader + " does not match taskId in the request"
}
