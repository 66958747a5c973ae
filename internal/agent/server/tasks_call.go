package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

const (
	// taskAfter is when a call becomes a task that has no answer by then.
	taskAfter = 800 * time.Millisecond
	// slowTaskAfter is the same for tools that are known to be slow. What the gateway refuses
	// has its answer by then.
	slowTaskAfter = 50 * time.Millisecond
	// storeTimeout is how long the outcome of a task is tried to be stored when the gateway
	// stops.
	storeTimeout = 3 * time.Second
)

// taskPlan is how a call becomes a task.
type taskPlan struct {
	after time.Duration
	asks  bool // at its first question, too
	// outcome converts the outcome of the call.
	outcome func(*ferrule.Call, *ferrule.Result, error) (*mcp.CallToolResult, error)
	args    json.RawMessage // of the call, without secrets
	changes bool            // the tool changes something
}

// becameTask is the error of a call that goes on as a task.
type becameTask struct{ *tasks.Running }

func (becameTask) Error() string { return "the call has become a task" }

// planTask returns how a call may become a task; nil if it must not. The error is for clients
// that cannot make the call.
func (v *view) planTask(ctx context.Context, req *mcp.CallToolRequest, call *ferrule.Call) (*taskPlan, error) {
	_, tool := v.server.seenBy(ctx).Tool(call.Device, call.Tool)
	if !v.knowsTasks(ctx, req) && !v.asksForTask(req) {
		switch {
		case tool == nil || tool.Task != ferrule.TaskOnly || v.server.parts.Tasks == nil:
			return nil, nil
		case req.ProtocolVersion() >= mcphttp.StatelessVersion:
			return nil, errNeedsTasks
		}
		return nil, ferrule.Errorf(ferrule.Denied, "%s of %s takes long, and needs a program with the MCP extension %s", call.Tool, call.Device, tasksExtension).
			WithHint("use a program that supports it")
	}
	p, name := profileOf(ctx), req.Params.Name
	plan := &taskPlan{after: taskAfter, args: call.Args}
	plan.outcome = func(call *ferrule.Call, result *ferrule.Result, err error) (*mcp.CallToolResult, error) {
		return v.toolResult(p, false, name, call, result, err) // the task has the result type
	}
	if tool != nil {
		plan.args, plan.changes = tool.MaskArgs(call.Args, true), tool.Effect != ferrule.Reads
		if tool.Task != "" {
			plan.after, plan.asks = slowTaskAfter, true
		}
	}
	return plan, nil
}

// callBoot makes IDs of calls unique.
var callBoot = strings.ToLower(rand.Text()[:12])

// newCallID returns an ID for a call, like those of the pipeline.
func (s *Server) newCallID() string {
	return fmt.Sprintf("%s-t%d", callBoot, s.taskCalls.Add(1))
}

// promote makes a task of the call: its record is stored when promote returns. It returns nil
// if that fails: the call then goes on as one of a client without tasks.
func (c *pendingCall) promote(ctx context.Context, plan *taskPlan) *tasks.Running {
	s := c.view.server
	if !s.begin() {
		return nil
	}
	c.mu.Lock()
	doing, job := c.doing, c.job
	c.mu.Unlock()
	task, err := s.parts.Tasks.Begin(ctx, ferrule.Task{
		Owner: c.subject.who, Call: c.id, Device: c.subject.device, Tool: c.subject.name, Args: plan.args, Changes: plan.changes, Message: doing, Job: job,
	}, func(why error) { c.cancel(why) })
	if err != nil {
		s.calls.Done()
		level := slog.LevelWarn
		if errors.Is(err, tasks.ErrLimit) { // the caller could fill the log
			level = slog.LevelDebug
		}
		s.parts.Log.Log(ctx, level, "agents: a call that takes long does not become a task", "call", c.id, "device", c.subject.device, "tool", c.subject.name, "err", err)
		return nil
	}
	c.mu.Lock()
	c.task, c.report = task, nil
	if c.doing != doing {
		task.Report(c.doing)
	}
	if c.job != nil && c.job != job {
		go c.setJob(task, *c.job)
	}
	close(c.becameTask)
	c.mu.Unlock()
	go func() {
		defer s.calls.Done()
		<-c.over
		c.endTask(plan)
	}()
	return task
}

// began takes note of the job that the device has begun.
func (c *pendingCall) began(job ferrule.Job) {
	c.mu.Lock()
	c.job = &job
	task := c.task
	c.mu.Unlock()
	if task != nil {
		c.setJob(task, job)
	}
}

// setJob stores the job of a task, so that a restart does not lose it.
func (c *pendingCall) setJob(task *tasks.Running, job ferrule.Job) {
	if err := task.SetJob(context.Background(), job); err != nil {
		c.view.server.parts.Log.Warn("agents: the job of a task cannot be stored; after a restart its outcome is unknown", "call", c.id, "device", c.subject.device, "tool", c.subject.name, "err", err)
	}
}

// endTask stores the outcome of a task.
func (c *pendingCall) endTask(plan *taskPlan) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := context.AfterFunc(c.view.server.stop, func() { time.AfterFunc(storeTimeout, cancel) })
	defer stop()
	defer func() {
		if r := recover(); r != nil {
			c.task.Fail(ctx, jsonrpc.CodeInternalError, fmt.Sprintf("the gateway failed at the result of this call: %v. The action may have run.", r))
		}
	}()
	failure := c.failure()
	var e *ferrule.Error
	if errors.As(failure, &e) && e.Code == ferrule.Cancelled && c.task.Cancelled() {
		c.task.CompleteCancelled(ctx, (&ferrule.Error{Code: e.Code, Message: "cancelled", Sent: e.Sent}).Explain())
		return
	}
	if c.task.Task().Job != nil && c.view.server.stop.Err() != nil {
		return // the device goes on, and the next run asks for the outcome
	}
	result, err := plan.outcome(c.call, c.result, failure)
	var data []byte
	if err == nil {
		data, err = json.Marshal(result)
	}
	var wire *jsonrpc.Error
	switch {
	case err == nil:
		c.task.Complete(ctx, data)
	case errors.As(err, &wire):
		c.task.Fail(ctx, wire.Code, wire.Message)
	default:
		c.task.Fail(ctx, jsonrpc.CodeInternalError, err.Error()+". The action may have run.")
	}
}
