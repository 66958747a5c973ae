package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// tasksExtension is the extension by which modern devices answer a call with a task.
const tasksExtension = "io.modelcontextprotocol/tasks"

// taskHandle begins the handles of jobs that are tasks of MCP. The ID of the task follows.
const taskHandle = "task:"

const (
	// taskWait limits one request about a task.
	taskWait = 10 * time.Second
	// taskTTL is how long legacy devices are asked to keep a task.
	taskTTL = 24 * time.Hour
	// maxTaskID is the longest ID of a task, in bytes.
	maxTaskID = 512
	// maxFollowed is for how many tasks it is remembered which questions were answered.
	maxFollowed = 64
)

// taskStyle is how a device does tasks.
type taskStyle int

const (
	noTasks     taskStyle = iota
	modernTasks           // the device decides; the outcome is in the status
	legacyTasks           // the client asks for a task; the outcome is fetched
)

// taskStyle returns how the device does tasks.
func (s *session) taskStyle() taskStyle { return s.server.taskStyle(s.version()) }

func (about server) taskStyle(version string) taskStyle {
	has := about.Capabilities
	switch {
	case version >= modern && declared(has.Extensions[tasksExtension]):
		return modernTasks
	case version == legacy && declared(has.Tasks.Requests.Tools.Call):
		return legacyTasks
	}
	return noTasks
}

// taskJSON is a task, in both styles.
type taskJSON struct {
	Type     string          `json:"resultType"`
	ID       string          `json:"taskId"`
	Status   string          `json:"status"`
	Message  string          `json:"statusMessage"`
	Poll     float64         `json:"pollIntervalMs"`
	PollOld  float64         `json:"pollInterval"`
	Result   json.RawMessage `json:"result"`
	Error    *jsonrpc.Error  `json:"error"`
	Requests json.RawMessage `json:"inputRequests"`
}

// job returns the job that a task is, within limits.
func (t *taskJSON) job() (*ferrule.Job, error) {
	if len(t.ID) > maxTaskID || t.ID == "" {
		return nil, fmt.Errorf("its ID has %d bytes, want 1 to %d", len(t.ID), maxTaskID)
	}
	ms := cmp.Or(t.Poll, t.PollOld)
	ms = min(max(ms, 0), float64(ferrule.MaxJobPoll.Milliseconds()))
	return ferrule.NewJob(taskHandle+t.ID, ferrule.Clean(t.Message, ferrule.MaxJobMessage), time.Duration(ms)*time.Millisecond)
}

// createdTask returns the task that an answer to a call has in place of a result; nil if it
// has none.
func createdTask(style taskStyle, answer json.RawMessage) *taskJSON {
	if !mayContain(answer, "task") {
		return nil
	}
	var created struct {
		taskJSON
		Task *taskJSON `json:"task"`
	}
	if json.Unmarshal(answer, &created) != nil {
		return nil
	}
	switch {
	case style == modernTasks && created.Type == "task":
		return &created.taskJSON
	case style == legacyTasks && created.Task != nil && created.Task.ID != "":
		return created.Task
	}
	return nil
}

// beginTask returns the result of a call that the device answered with a task.
func beginTask(call *ferrule.Call, task *taskJSON) (*ferrule.Result, error) {
	job, err := task.job()
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Unanswered, "%s began %s as a task, but cannot be asked about it: %w", call.Device, call.Tool, err).
			WithHint("read the state of the device to see whether it is done; do not repeat the call").Once()
	}
	return &ferrule.Result{Job: job}, nil
}

// Job implements protocol.JobSession.
func (s *session) Job(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	id, ok := strings.CutPrefix(call.Job.Handle, taskHandle)
	style := s.taskStyle()
	if !ok || style == noTasks {
		return nil, lostTask(call, "the device no longer says that it has tasks")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := s.begin(ctx, call)
	if err != nil {
		return nil, err
	}
	defer s.end()
	f := &taskRequest{session: s, active: c, style: style, id: id}
	if call.Operation == ferrule.CancelJob {
		return f.cancel(ctx)
	}
	return f.poll(ctx)
}

// lostTask is the error of a task whose outcome nobody can tell.
func lostTask(call *ferrule.Call, why string) *ferrule.Error {
	return ferrule.Errorf(ferrule.Unanswered, "the outcome of %s on %s is unknown: %s", call.Tool, call.Device, why).Once().EndsJob()
}

// taskRequest asks about one task.
type taskRequest struct {
	session *session
	active  *activeCall
	style   taskStyle
	id      string
}

// send sends a request about the task. Its error ends the job only if the device does not
// know the task.
func (f *taskRequest) send(ctx context.Context, method string, more map[string]any) (json.RawMessage, error) {
	s, call := f.session, f.active.call
	params := map[string]any{"taskId": f.id}
	for name, value := range more {
		params[name] = value
	}
	r := s.newRequest(f.active, method, f.id, params)
	r.harmless = method != "tasks/update"
	a, err := s.exchange(ctx, r)
	e := asRequestError(err)
	switch {
	case e != nil && e.sent && ctx.Err() != nil:
		s.cancel(ctx, r)
		return nil, jsonrpc.WaitError(ctx, call)
	case e != nil:
		return nil, e.callError(ctx, call)
	case err != nil:
		return nil, ferrule.Errorf(ferrule.Internal, "%w", err)
	case a.Error != nil && a.Error.Code == jsonrpc.CodeInvalidParams:
		return nil, lostTask(call, "the device does not know it any more; it may have been restarted")
	case a.Error != nil && (a.Error.Code == jsonrpc.CodeMethodNotFound || a.Error.Code == codeCapability):
		return nil, lostTask(call, "the device cannot be asked: "+a.Error.Error())
	case a.Error != nil:
		return nil, jsonrpc.AnswerError(call, a.Error, refused(a.Error))
	}
	return a.Result, nil
}

// limited is send with a time limit.
func (f *taskRequest) limited(ctx context.Context, method string, more map[string]any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, taskWait)
	defer cancel()
	return f.send(ctx, method, more)
}

// cancel asks the device to cancel the task. The next poll says what became of it: a legacy
// device refuses to cancel a task that has ended.
func (f *taskRequest) cancel(ctx context.Context) (*ferrule.Result, error) {
	if _, err := f.limited(ctx, "tasks/cancel", nil); err != nil && !ferrule.AsError(err).JobEnded {
		return nil, err
	}
	return &ferrule.Result{Job: f.active.call.Job}, nil
}

// poll returns the state of the task, after it sent answers to its questions.
func (f *taskRequest) poll(ctx context.Context) (*ferrule.Result, error) {
	call := f.active.call
	if call.Inputs != nil {
		responses, err := inputResponses(call)
		if err != nil {
			return nil, ferrule.AsError(err).EndsJob()
		}
		if _, err := f.limited(ctx, "tasks/update", map[string]any{"inputResponses": responses}); err != nil {
			return nil, err
		}
		f.session.answered(f.id, call.Inputs.Questions)
	}
	raw, err := f.limited(ctx, "tasks/get", nil)
	if err != nil {
		return nil, err
	}
	var task taskJSON
	if err := json.Unmarshal(raw, &task); err != nil {
		return nil, ferrule.Errorf(ferrule.Failed, "%s has an invalid task for %s: %s", call.Device, call.Tool, jsonrpc.Reason(err))
	}
	return f.read(ctx, &task)
}

// read returns what a task says.
func (f *taskRequest) read(ctx context.Context, task *taskJSON) (*ferrule.Result, error) {
	call := f.active.call
	task.ID = f.id // whatever the device says
	job, err := task.job()
	if err != nil {
		return nil, lostTask(call, err.Error())
	}
	switch task.Status {
	case "working", "submitted":
		return &ferrule.Result{Job: job}, nil
	case inputRequired:
		if f.style == legacyTasks { // its questions are requests while the result is fetched
			return f.fetch(ctx)
		}
		return f.questions(job, task)
	case "cancelled":
		f.session.forgetTask(f.id)
		return nil, ferrule.Errorf(ferrule.Cancelled, "%s cancelled %s", call.Device, call.Tool).AfterSend().Once().EndsJob()
	case "completed", "failed":
		f.session.forgetTask(f.id)
		if f.style == legacyTasks {
			ctx, cancel := context.WithTimeout(ctx, taskWait)
			defer cancel()
			return f.fetch(ctx)
		}
		return f.outcome(task)
	}
	return nil, ferrule.Errorf(ferrule.Failed, "%s has a task for %s in the unknown state %q", call.Device, call.Tool, ferrule.Clean(task.Status, 32))
}

// outcome returns the outcome of a modern task.
func (f *taskRequest) outcome(task *taskJSON) (*ferrule.Result, error) {
	call := f.active.call
	if task.Status == "failed" {
		reason := cmp.Or(ferrule.OneLine(ferrule.Clean(task.Message, ferrule.MaxJobMessage), ferrule.MaxJobMessage), "the device gives no reason")
		if task.Error != nil {
			reason = task.Error.Error()
		}
		return nil, ferrule.Errorf(ferrule.Failed, "%s failed on %s: %s", call.Tool, call.Device, reason).Once().EndsJob()
	}
	return finalResult(call, task.Result)
}

// finalResult decodes the result of a task.
func finalResult(call *ferrule.Call, raw json.RawMessage) (*ferrule.Result, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, ferrule.Errorf(ferrule.Failed, "%s finished %s, but its task has no result", call.Device, call.Tool).Once().EndsJob()
	}
	result, err := readTool(call, raw)
	if err != nil {
		e := ferrule.AsError(err)
		if e.Code == ferrule.Refused { // it had begun
			e.Code = ferrule.Failed
		}
		return nil, e.Once().EndsJob()
	}
	return result, nil
}

// fetch returns the result of a legacy task. The device answers when the task has ended, and
// may ask questions before.
func (f *taskRequest) fetch(ctx context.Context) (*ferrule.Result, error) {
	raw, err := f.send(ctx, "tasks/result", nil)
	if err != nil {
		return nil, err
	}
	return finalResult(f.active.call, raw)
}

// questions returns the questions of a task that nobody has answered yet. A device may need
// a moment to take an answer into account.
func (f *taskRequest) questions(job *ferrule.Job, task *taskJSON) (*ferrule.Result, error) {
	call := f.active.call
	var members map[string]json.RawMessage
	if json.Unmarshal(task.Requests, &members) != nil || len(members) == 0 {
		return &ferrule.Result{Job: job}, nil
	}
	known := f.session.answeredKeys(f.id)
	for name := range members {
		if slices.Contains(known, name) {
			delete(members, name)
		}
	}
	if len(members) == 0 {
		return &ferrule.Result{Job: job}, nil
	}
	if len(members)+len(known) > maxQuestions {
		return nil, lostTask(call, fmt.Sprintf("its task asks more than %d questions", maxQuestions))
	}
	request, err := parseInputRequest(call, jsonrpc.Marshal(map[string]any{"resultType": inputRequired, "inputRequests": members}))
	if err != nil {
		return nil, ferrule.AsError(err).EndsJob()
	}
	return &ferrule.Result{InputRequest: request}, nil
}

// answered remembers that questions of a task were answered.
func (s *session) answered(id string, questions []ferrule.Question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed == nil || len(s.followed) >= maxFollowed && s.followed[id] == nil {
		s.followed = make(map[string][]string)
	}
	for _, q := range questions {
		s.followed[id] = append(s.followed[id], q.Name)
	}
}

func (s *session) answeredKeys(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.followed[id])
}

func (s *session) forgetTask(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followed, id)
}

// taskParams returns the params of a call. A legacy device runs some tools only if the client
// asks for a task.
func (s *session) taskParams(call *ferrule.Call, args json.RawMessage) map[string]any {
	params := map[string]any{"name": call.Tool, "arguments": args}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[call.Tool] == taskRequired && s.taskStyle() == legacyTasks {
		params["task"] = map[string]any{"ttl": taskTTL.Milliseconds()}
	}
	return params
}

// The words of execution.taskSupport.
const (
	taskOptional = "optional"
	taskRequired = "required"
)

// isUnaskedTask reports whether the answer to a call only says that the device has begun a
// task that it cannot be asked about. Some devices begin one although nobody asked for it:
// they answer with the task, or with an empty object in place of the result.
func (s *session) isUnaskedTask(tool string, answer json.RawMessage, result *ferrule.Result) bool {
	if createdTask(modernTasks, answer) != nil || createdTask(legacyTasks, answer) != nil {
		return true
	}
	s.mu.Lock()
	optional := s.tasks[tool] == taskOptional
	s.mu.Unlock()
	return optional && len(result.Content) == 0 && equalJSON(result.Value, json.RawMessage("{}"))
}
