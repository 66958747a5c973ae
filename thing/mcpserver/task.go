package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxTasks is the limit of tasks that are running or kept. A call that would be one more
	// stays an ordinary call.
	maxTasks = 64
	// maxTaskTime is how long a task may run.
	maxTaskTime = 24 * time.Hour
	// keepTask is how long a task is kept after its end.
	keepTask = 10 * time.Minute
	// pollTask is how often clients should ask.
	pollTask = 500 * time.Millisecond
	// maxStatus is the limit of a status message, in bytes.
	maxStatus = 512
)

// The statuses of tasks.
const (
	taskWorking   = "working"
	taskInput     = "input_required"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

// tasks are the tasks of a device.
type tasks struct {
	mu      sync.Mutex
	all     map[string]*task
	running sync.WaitGroup // calls of clients that know tasks
}

func newTasks() *tasks { return &tasks{all: make(map[string]*task)} }

// begin returns a call that may become a task.
func (l *tasks) begin(owner string, cancel context.CancelFunc) *task {
	l.running.Add(1)
	return &task{list: l, id: rand.Text(), owner: owner, cancel: cancel, status: taskWorking, created: time.Now(), over: make(chan struct{}), promoted: make(chan struct{})}
}

// add keeps a task. It reports false if there are too many.
func (l *tasks) add(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	if len(l.all) >= maxTasks {
		return false
	}
	l.all[t.id] = t
	return true
}

// count returns how many tasks are kept.
func (l *tasks) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	return len(l.all)
}

// find returns a task of an owner; nil if there is none.
func (l *tasks) find(id, owner string) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	if t := l.all[id]; t != nil && t.owner == owner {
		return t
	}
	return nil
}

// expire drops old tasks. It is called with mu held.
func (l *tasks) expire() {
	for id, t := range l.all {
		if t.expired(time.Now()) {
			delete(l.all, id)
		}
	}
}

// empties waits until no task runs, and reports whether that was before ctx ended.
func (l *tasks) empties(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		l.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// task is a call of a client that knows tasks. It is a task once it was promoted; before, it
// is an ordinary call.
type task struct {
	list     *tasks
	id       string
	owner    string
	cancel   context.CancelFunc
	created  time.Time
	promoted chan struct{} // closed when it became a task
	over     chan struct{} // closed at the end; result and err are set then
	result   mcp.Result
	err      error

	mu        sync.Mutex
	decided   bool // it is a task, or will not become one
	is        bool // it is a task
	status    string
	message   string
	updated   time.Time
	ended     time.Time
	stopped   bool // the caller has cancelled it
	open      map[string]Question
	used      map[string]int // how often a question was asked
	responses map[string]any // to questions, by key
	answered  chan struct{}  // closed when no question is open
	outcome   json.RawMessage
	failure   *jsonrpc.Error
}

type taskKey struct{}

func taskOf(ctx context.Context) *task {
	t, _ := ctx.Value(taskKey{}).(*task)
	return t
}

// promote makes the call a task, unless there are too many or it has ended.
func (t *task) promote() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.decided {
		return
	}
	t.decided, t.is, t.updated = true, t.list.add(t), time.Now()
	if t.is {
		close(t.promoted)
	}
}

// staysCall reports whether the call is not a task, and keeps it from becoming one.
func (t *task) staysCall() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decided = true
	return !t.is
}

func (t *task) isTask() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.is
}

// abandon cancels the call because its request has ended, unless it is a task.
func (t *task) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.is {
		t.decided = true
		t.cancel()
	}
}

// stop cancels the task. It may still complete.
func (t *task) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.cancel()
}

// say sets the status message. It reports false if the call is not a task.
func (t *task) say(message string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.is && message != "" {
		t.message, t.updated = message[:min(len(message), maxStatus)], time.Now()
	}
	return t.is
}

// end stores the outcome.
func (t *task) end(result mcp.Result, err error) {
	defer t.list.running.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(t.over)
	t.decided, t.result, t.err = true, result, err
	t.ended, t.updated, t.open = time.Now(), time.Now(), nil
	called, _ := result.(*mcp.CallToolResult)
	var wire *jsonrpc.Error
	switch {
	case err == nil && t.stopped && called != nil && called.IsError:
		t.status = taskCancelled
	case err == nil:
		t.status = taskCompleted
		if t.outcome, err = json.Marshal(result); err != nil {
			t.status, t.failure = taskFailed, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		}
	case errors.As(err, &wire):
		t.status, t.failure = taskFailed, wire
	default:
		t.status, t.failure = taskFailed, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
}

func (t *task) expired(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended.IsZero() && now.Sub(t.ended) > keepTask
}

// show returns the task in MCP. Its type is "task" when it is created.
func (t *task) show(kind string) *taskResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := &taskResult{
		Type: kind, ID: t.id, Status: t.status, Message: t.message, Created: t.created.UTC().Truncate(time.Millisecond), Updated: t.updated.UTC().Truncate(time.Millisecond),
		TTL: (maxTaskTime + keepTask).Milliseconds(), Poll: pollTask.Milliseconds(),
	}
	if !t.ended.IsZero() {
		out.TTL = (t.ended.Sub(t.created) + keepTask).Milliseconds()
	}
	if kind == "task" { // the rest is in the answer to tasks/get
		return out
	}
	if t.status == taskInput {
		out.Questions = make(mcp.InputRequestMap)
		for key, q := range t.open {
			out.Questions[key] = requestOf(q)
		}
	}
	out.Result, out.Error = t.outcome, t.failure
	return out
}

// ask asks the caller of a task, and waits for all answers. It returns the responses by the
// names of the questions.
func (t *task) ask(ctx context.Context, questions []Question) (map[string]any, error) {
	t.mu.Lock()
	names := make(map[string]string)
	t.open, t.responses, t.answered = make(map[string]Question), make(map[string]any), make(chan struct{})
	if t.used == nil {
		t.used = make(map[string]int)
	}
	for _, q := range questions {
		key := q.question()
		if t.used[key]++; t.used[key] > 1 { // a key is never used twice
			key = fmt.Sprintf("%s-%d", key, t.used[key])
		}
		t.open[key], names[key] = q, q.question()
	}
	t.status, t.updated = taskInput, time.Now()
	answered := t.answered
	t.mu.Unlock()
	var err error
	select {
	case <-answered:
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status, t.updated, t.open = taskWorking, time.Now(), nil
	responses := make(map[string]any)
	for key, response := range t.responses {
		responses[names[key]] = response
	}
	return responses, err
}

// answer takes responses to open questions, and ignores all others.
func (t *task) answer(responses map[string]json.RawMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, q := range t.open {
		response, err := decodeResponse(q, responses[key])
		if err != nil {
			continue
		}
		t.responses[key] = response
		delete(t.open, key)
		if len(t.open) == 0 {
			close(t.answered)
		}
	}
}
