package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// A call of a client that knows tasks becomes one if it takes long. Its request then ends with
// the ID of the task, and the call goes on:
//
//	tools/call ──▶ pendingCall ──▶ pipeline ──▶ device
//	    ◀── ID of the task              │
//	tasks/get, tasks/update ──▶ record ◀┘ messages, questions, result
//
// Clients that do not know tasks wait, with progress.

// tasksExtension is the name of the extension of MCP.
const tasksExtension = "io.modelcontextprotocol/tasks"

// The methods of the extension.
const (
	getTask    = "tasks/get"
	updateTask = "tasks/update"
	cancelTask = "tasks/cancel"
	resultTask = "tasks/result" // only of 2025-11-25
	listTasks  = "tasks/list"   // only of 2025-11-25
)

// Methods of MCP that say something about tasks.
const (
	callMethod       = "tools/call"
	initializeMethod = "initialize"
)

// taskParams are the parameters of all methods about tasks.
type taskParams struct {
	mcp.ParamsBase
	TaskID    string                     `json:"taskId"`
	Responses map[string]json.RawMessage `json:"inputResponses,omitempty"`
	Cursor    string                     `json:"cursor,omitempty"` // of tasks/list
}

// taskRequest is a request of one of these methods.
type taskRequest = mcp.ServerRequest[*taskParams]

// addTaskMethods makes the SDK decode the methods of the extension. The middleware answers
// them.
func (v *view) addTaskMethods() {
	if v.server.parts.Tasks == nil {
		return
	}
	for _, method := range []string{getTask, updateTask, cancelTask, resultTask, listTasks} {
		err := mcp.AddReceivingCustomMethod(v.sdk, method, func(context.Context, *mcp.ServerSession, *taskParams) (*taskResult, error) {
			return nil, errors.New("not answered by the middleware")
		})
		if err != nil {
			panic(err) // the SDK has the method itself
		}
	}
}

// knowsTasks reports whether the client of a request can handle tasks.
func (v *view) knowsTasks(ctx context.Context, req callRequest) bool {
	can := clientCan(ctx, req)
	if v.server.parts.Tasks == nil || req.ProtocolVersion() < mcphttp.StatelessVersion || can == nil {
		return false
	}
	_, declared := can.Extensions[tasksExtension]
	return declared
}

// withoutTasks returns the capabilities for versions before 2026-07-28, which do not have the
// extension.
func withoutTasks(c *mcp.ServerCapabilities) *mcp.ServerCapabilities {
	if c == nil || c.Extensions == nil {
		return c
	}
	without := *c
	without.Extensions = maps.Clone(c.Extensions)
	delete(without.Extensions, tasksExtension)
	return &without
}

// Errors of requests about tasks.
var (
	// errNeedsTasks is for a client that did not declare the extension.
	errNeedsTasks error = &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "this needs a client with the extension " + tasksExtension + ". Nothing was sent.",
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
	// errUnknownTask does not say whether the task belongs to somebody else.
	errUnknownTask = badParams("unknown task: there is none with this ID, or it has expired")
)

// receiveTask answers a request about a task.
func (v *view) receiveTask(ctx context.Context, method string, req *taskRequest) (mcp.Result, error) {
	switch {
	case v.speaksOldTasks(req) && method != updateTask:
		return v.receiveOldTask(ctx, method, req)
	case req.ProtocolVersion() < mcphttp.StatelessVersion, method == resultTask, method == listTasks:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", method)}
	case !v.knowsTasks(ctx, req):
		return nil, errNeedsTasks
	}
	task, err := v.taskOf(ctx, req.Params.TaskID)
	if err != nil {
		return nil, err
	}
	switch method {
	case getTask:
		return newTaskResult(task, "complete"), nil
	case updateTask:
		answers := make(map[string]ferrule.Answer)
		for key, q := range task.Questions {
			if a, ok := answerTo(q, decodeResponse(q, req.Params.Responses[key])); ok {
				answers[key] = a
			}
		}
		err = v.server.parts.Tasks.Answer(ctx, caller(ctx), task.ID, answers)
	case cancelTask:
		err = v.server.parts.Tasks.Cancel(ctx, caller(ctx), task.ID)
	}
	if err != nil {
		return nil, taskError(err)
	}
	return completeResult{}, nil
}

// taskOf returns a task that the caller began, unless its device is hidden from the caller by
// now.
func (v *view) taskOf(ctx context.Context, id string) (*ferrule.Task, error) {
	if id == "" {
		return nil, badParams("taskId is missing")
	}
	task, err := v.server.parts.Tasks.Get(ctx, caller(ctx), id)
	if err != nil {
		return nil, taskError(err)
	}
	if _, _, exists := v.server.parts.Catalog.All().Lookup(task.Device); exists {
		if _, _, visible := v.server.seenBy(ctx).Lookup(task.Device); !visible {
			return nil, errUnknownTask
		}
	}
	return task, nil
}

// taskError converts an error of the tasks.
func taskError(err error) error {
	if errors.Is(err, tasks.ErrUnknown) {
		return errUnknownTask
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the task cannot be read or changed now: %v. Try again.", err)}
}

// taskResult is a task in MCP: a result, or the parameters of a notification.
type taskResult struct {
	mcp.ResultBase
	Type      string              `json:"resultType,omitempty"`
	ID        string              `json:"taskId"`
	Status    ferrule.TaskStatus  `json:"status"`
	Message   string              `json:"statusMessage,omitempty"`
	Created   time.Time           `json:"createdAt"`
	Updated   time.Time           `json:"lastUpdatedAt"`
	TTL       int64               `json:"ttlMs"`
	Poll      int64               `json:"pollIntervalMs"`
	Questions mcp.InputRequestMap `json:"inputRequests,omitempty"`
	Result    json.RawMessage     `json:"result,omitempty"`
	Error     *jsonrpc.Error      `json:"error,omitempty"`
}

// newTaskResult converts a task. The type is "task" when it is created, "complete" as the
// answer to tasks/get, and empty in a notification.
func newTaskResult(t *ferrule.Task, kind string) *taskResult {
	out := &taskResult{
		Type: kind, ID: t.ID, Status: t.Status, Message: t.Message,
		Created: t.Created.UTC().Truncate(time.Millisecond), Updated: t.Updated.UTC().Truncate(time.Millisecond),
		TTL: t.TTL.Milliseconds(), Poll: pollInterval(time.Since(t.Created)).Milliseconds(),
	}
	if kind == "task" { // the rest is in the answer to tasks/get
		return out
	}
	switch t.Status {
	case ferrule.TaskInput:
		out.Questions = make(mcp.InputRequestMap)
		for key, q := range t.Questions {
			if request, err := inputRequest(q); err == nil { // it was checked before
				out.Questions[key] = request
			}
		}
	case ferrule.TaskCompleted:
		out.Result = t.Result
	case ferrule.TaskFailed:
		out.Error = &jsonrpc.Error{Code: t.ErrorCode, Message: t.ErrorText}
	}
	return out
}

// pollInterval is how often a client should ask for a task of some age.
func pollInterval(age time.Duration) time.Duration {
	return min(max(age/20, 500*time.Millisecond), 5*time.Second)
}

// completeResult is the answer to methods without a result.
type completeResult struct{ emptyResult }

func (completeResult) MarshalJSON() ([]byte, error) { return []byte(`{"resultType":"complete"}`), nil }

// nameHeader is the header with the ID of the task that a request is about.
const nameHeader = "Mcp-Name"

// check checks a request before the SDK gets it.
func (s *Server) check(h http.Header, r *http.Request, body []byte) (status int, code int64, reason string) {
	if reason := wrongTaskName(r, body); reason != "" {
		return http.StatusBadRequest, mcp.CodeHeaderMismatch, reason
	}
	status, reason = s.stepUp(h, r, body)
	return status, jsonrpc.CodeInvalidRequest, reason
}

// wrongTaskName says that a header names another task than the request. The SDK checks this for
// its own methods.
func wrongTaskName(r *http.Request, body []byte) (reason string) {
	name := r.Header.Get(nameHeader)
	if name == "" || r.Header.Get(mcphttp.VersionHeader) < mcphttp.StatelessVersion {
		return ""
	}
	var request struct {
		Method string `json:"method"`
		Params struct {
			TaskID string `json:"taskId"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &request) != nil {
		return "" // the SDK says what is wrong
	}
	switch request.Method {
	case getTask, updateTask, cancelTask:
		if name != request.Params.TaskID {
			return "the header " + nameHeader + " does not match taskId in the request"
		}
	}
	return ""
}
