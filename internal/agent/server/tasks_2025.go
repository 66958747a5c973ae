//lint:file-ignore SA1019 sampling and roots are deprecated, but some agents have nothing else

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// MCP 2025-11-25 has experimental tasks, which the client asks for:
//
//	tools/call with task ──▶ record ──▶ pendingCall ──▶ pipeline ──▶ device
//	    ◀── ID of the task      ▲                │
//	tasks/get, tasks/cancel ────┤◀───────────────┘ messages, questions, result
//	tasks/result, which waits ──┘
//	    ◀── questions, each a request in its stream
//	    ◀── result
//
// The records are those of 2026-07-28. The SDK knows none of this: withDropped passes on what
// the client says, and the results are types of this package. Clients that say nothing about
// tasks see nothing of them.

// relatedTask is the key in the _meta of messages that belong to a task.
const relatedTask = "io.modelcontextprotocol/related-task"

const (
	// cancelTime is how long the answer to tasks/cancel waits for the end of the call.
	cancelTime = 5 * time.Second
)

// speaksOldTasks reports whether the version of a request has the experimental tasks.
func (v *view) speaksOldTasks(req interface{ ProtocolVersion() string }) bool {
	return v.server.parts.Tasks != nil && req.ProtocolVersion() == mcphttp.SessionVersion
}

// asksForTask reports whether a call is to become a task at once.
func (v *view) asksForTask(req *mcp.CallToolRequest) bool {
	_, asks := req.Params.Meta[taskMeta].(map[string]any)
	return asks && v.speaksOldTasks(req)
}

// declaredTasks reports whether a client says that it knows the experimental tasks.
func declaredTasks(first *mcp.InitializeParams) bool {
	if first == nil {
		return false
	}
	_, declared := first.Meta[taskMeta].(map[string]any)
	return declared
}

// oldInitializeResult is an InitializeResult with the capability, which the SDK does not have.
type oldInitializeResult struct {
	*mcp.InitializeResult
	Capabilities oldCapabilities `json:"capabilities"`
}

type oldCapabilities struct {
	*mcp.ServerCapabilities
	Tasks json.RawMessage `json:"tasks"`
}

// withOldTasks adds the capability to what a client is told that declared it, if the gateway
// has tasks.
func withOldTasks(has bool, first *mcp.InitializeParams, result *mcp.InitializeResult) mcp.Result {
	if !has || result.ProtocolVersion != mcphttp.SessionVersion || !declaredTasks(first) {
		return result
	}
	return &oldInitializeResult{result, oldCapabilities{result.Capabilities, json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)}}
}

// oldListResult is a list of tools that says which of them should be called as tasks.
type oldListResult struct {
	*mcp.ListToolsResult
	Tools []oldTool `json:"tools"`
}

type oldTool struct {
	*mcp.Tool
	Execution *oldExecution `json:"execution,omitempty"`
}

type oldExecution struct {
	TaskSupport string `json:"taskSupport"`
}

// withTaskSupport answers tools/list. Clients that declared the experimental tasks are told
// which tools are slow.
func (v *view) withTaskSupport(ctx context.Context, req *mcp.ListToolsRequest) (mcp.Result, error) {
	result, err := v.listTools(ctx, req)
	if err != nil || !v.speaksOldTasks(req) || !declaredTasks(req.Session.InitializeParams()) {
		return answer(result, err)
	}
	modes := make(map[string]ferrule.TaskMode)
	for _, o := range v.list(v.server.seenBy(ctx)) {
		modes[o.Name] = o.Tool.Task
	}
	out := &oldListResult{result, make([]oldTool, len(result.Tools))}
	for i, tool := range result.Tools {
		out.Tools[i].Tool = tool
		switch modes[tool.Name] {
		case ferrule.TaskSlow:
			out.Tools[i].Execution = &oldExecution{"optional"}
		case ferrule.TaskOnly:
			out.Tools[i].Execution = &oldExecution{"required"}
		}
	}
	return out, nil
}

// errNoTask is for a call that was asked for as a task and cannot be one.
var errNoTask error = &jsonrpc.Error{
	Code:    jsonrpc.CodeInternalError,
	Message: "this call cannot become a task now: there are too many tasks, or its record cannot be stored. Nothing was sent. Try again later, or call it without a task.",
}

// callAsTask makes a call as a task. Its record is stored before the call begins: a client that
// asked for a task cannot read another result.
func (v *view) callAsTask(ctx context.Context, req *mcp.CallToolRequest, call *ferrule.Call, plan *taskPlan) (mcp.Result, error) {
	call.Askable, call.ID = askable(clientCan(ctx, req)), v.server.newCallID()
	c, run := v.newPending(ctx, nil, nil, call)
	task := c.promote(ctx, plan)
	if task == nil {
		c.cancel(nil)
		return nil, errNoTask
	}
	created := newOldTask(task.Task()) // before it runs: a task is created as one that works
	go run()
	return &oldCreated{Task: created}, nil
}

// oldTask is a task in MCP 2025-11-25.
type oldTask struct {
	ID      string             `json:"taskId"`
	Status  ferrule.TaskStatus `json:"status"`
	Message string             `json:"statusMessage,omitempty"`
	Created time.Time          `json:"createdAt"`
	Updated time.Time          `json:"lastUpdatedAt"`
	TTL     int64              `json:"ttl"`
	Poll    int64              `json:"pollInterval"`
}

// newOldTask converts a task. A call that failed is completed, with a result that says what the
// device may have done: clients do not fetch the result of a task that failed.
func newOldTask(t *ferrule.Task) oldTask {
	n := newTaskResult(t, "task")
	return oldTask{n.ID, n.Status, n.Message, n.Created, n.Updated, n.TTL, n.Poll}
}

// oldCreated is the result of a call that has become a task.
type oldCreated struct {
	mcp.ResultBase
	Task oldTask `json:"task"`
}

// oldTaskResult is the result of tasks/get and tasks/cancel.
type oldTaskResult struct {
	mcp.ResultBase
	oldTask
}

// oldTaskList is the result of tasks/list.
type oldTaskList struct {
	mcp.ResultBase
	Tasks []oldTask `json:"tasks"`
	Next  string    `json:"nextCursor,omitempty"`
}

// receiveOldTask answers a request about tasks of a client of 2025-11-25.
func (v *view) receiveOldTask(ctx context.Context, method string, req *taskRequest) (mcp.Result, error) {
	if method == listTasks {
		return v.listOldTasks(ctx, req)
	}
	task, err := v.taskOf(ctx, req.Params.TaskID)
	if err != nil {
		return nil, err
	}
	switch method {
	case resultTask:
		return v.oldResult(ctx, req.Session, task)
	case cancelTask:
		if task.Status.Final() {
			return nil, badParams(fmt.Sprintf("the task cannot be cancelled: it is %s", task.Status))
		}
		if err := v.server.parts.Tasks.Cancel(ctx, caller(ctx), task.ID); err != nil {
			return nil, taskError(err)
		}
		waiting, cancel := context.WithTimeout(ctx, cancelTime)
		defer cancel()
		v.followTask(waiting, task.ID, func(now *ferrule.Task) { task = now }) // as far as it got
	}
	return &oldTaskResult{oldTask: newOldTask(task)}, nil
}

// listOldTasks answers tasks/list with the caller's own tasks.
func (v *view) listOldTasks(ctx context.Context, req *taskRequest) (mcp.Result, error) {
	ids := v.server.parts.Tasks.IDs(caller(ctx))
	page, next, err := paged(ids, func(id string) string { return id }, req.Params.Cursor, 0)
	if err != nil {
		return nil, err
	}
	out := &oldTaskList{Tasks: []oldTask{}, Next: next}
	for _, id := range page {
		if task, err := v.taskOf(ctx, id); err == nil {
			out.Tasks = append(out.Tasks, newOldTask(task))
		}
	}
	return out, nil
}

// followTask calls fn with each state of a task, until it has ended or ctx ends.
func (v *view) followTask(ctx context.Context, id string, fn func(*ferrule.Task)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := false
	err := v.server.parts.Tasks.Watch(ctx, caller(ctx), []string{id}, func(t *ferrule.Task) error {
		fn(t)
		if ended = t.Status.Final(); ended {
			cancel()
		}
		return nil
	})
	if !ended && err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// oldResult waits for the end of a task, and returns its result. Meanwhile it asks the client
// the questions of the task.
func (v *view) oldResult(ctx context.Context, session *mcp.ServerSession, task *ferrule.Task) (mcp.Result, error) {
	asking := questionsOf{view: v, ctx: ctx, session: session, task: task.ID, open: make(map[string]context.CancelFunc)}
	err := v.followTask(ctx, task.ID, func(now *ferrule.Task) {
		task = now
		asking.update(now.Questions)
	})
	asking.update(nil)
	asking.wg.Wait()
	if err != nil {
		return nil, taskError(err)
	}
	if _, err := v.taskOf(ctx, task.ID); err != nil { // it is hidden by now
		return nil, err
	}
	switch task.Status {
	case ferrule.TaskFailed:
		return nil, &jsonrpc.Error{Code: task.ErrorCode, Message: task.ErrorText}
	case ferrule.TaskCancelled:
		return &mcp.CallToolResult{Meta: related(task.ID), IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: task.Message}}}, nil
	}
	result, err := ofTask(task.Result, task.ID)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the result of the task cannot be read: %v. The action may have run.", err)}
	}
	return result, nil
}

// related returns the _meta of a message that belongs to a task.
func related(id string) mcp.Meta { return mcp.Meta{relatedTask: map[string]any{"taskId": id}} }

// oldCallResult is a result of tools/call as it was stored.
type oldCallResult struct {
	emptyResult
	data json.RawMessage
}

func (r oldCallResult) MarshalJSON() ([]byte, error) { return r.data, nil }

// ofTask returns a result that says which task it belongs to.
func ofTask(result json.RawMessage, id string) (r oldCallResult, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result, &members); err != nil {
		return r, err
	}
	meta := make(map[string]any)
	if len(members["_meta"]) > 0 {
		if err := json.Unmarshal(members["_meta"], &meta); err != nil {
			return r, err
		}
	}
	maps.Copy(meta, related(id))
	if members["_meta"], err = json.Marshal(meta); err != nil {
		return r, err
	}
	r.data, err = json.Marshal(members)
	return r, err
}

// questionsOf asks the questions of a task in the stream of a request.
type questionsOf struct {
	view    *view
	ctx     context.Context // of the request
	session *mcp.ServerSession
	task    string
	open    map[string]context.CancelFunc // by key
	wg      sync.WaitGroup
}

// update asks what has not been asked in this stream yet, and takes back what has been answered
// otherwise.
func (a *questionsOf) update(questions map[string]ferrule.Question) {
	for key, cancel := range a.open {
		if _, open := questions[key]; !open {
			cancel()
		}
	}
	for _, key := range slices.Sorted(maps.Keys(questions)) {
		if _, asked := a.open[key]; asked {
			continue
		}
		ctx, cancel := context.WithCancel(a.ctx)
		a.open[key] = cancel
		q := questions[key]
		a.wg.Go(func() {
			defer cancel()
			defer recoverNotification(a.view.server.parts.Log)
			a.ask(ctx, key, q)
		})
	}
}

// ask asks one question. If there is no answer, the question stays open until the call gives up,
// and another tasks/result asks it again.
func (a *questionsOf) ask(ctx context.Context, key string, q ferrule.Question) {
	request, err := inputRequest(q)
	if err != nil { // it was checked before
		return
	}
	switch p := request.(type) {
	case *mcp.ElicitParams:
		p.Meta = related(a.task)
	case *mcp.CreateMessageWithToolsParams:
		p.Meta = related(a.task)
	case *mcp.ListRootsParams:
		p.Meta = related(a.task)
	}
	given, err := askNow(ctx, a.ctx, a.session, q, request)
	if err != nil {
		return
	}
	who := caller(a.ctx)
	if err := a.view.server.parts.Tasks.Answer(a.ctx, who, a.task, map[string]ferrule.Answer{key: given}); err != nil {
		a.view.server.parts.Log.Warn("agents: an answer to a question of a task cannot be stored", "task", a.task, "question", strings.ToValidUTF8(key, "?"), "err", err)
	}
}
