package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// A device may ask the caller something during a call. Up to 2025-11-25 the agent is
// asked at once, within its request. From 2026-07-28 on its request ends with the
// questions, the call waits, and goes on when the agent comes back:
//
//	tools/call ──▶ pendingCall ──▶ pipeline ──▶ device
//	    ◀── questions, state            │ asks
//	tools/call, answers, state ──▶ goes on
//	    ◀── result
//
// A state is valid for one request, of the same caller and for the same call. Any
// other request with a state starts nothing: the device is called once.
const (
	maxQuestions = 16                    // open at the same time in one call
	gatherTime   = 50 * time.Millisecond // for questions that a device asks together
)

// callRequest is a request that becomes a call.
type callRequest interface {
	mcp.Request
	ProtocolVersion() string
	ClientCapabilities() *mcp.ClientCapabilities
}

// inputs is what an agent must find out before it comes back.
type inputs struct {
	requests mcp.InputRequestMap
	state    string
}

// call makes a call for an agent, and reports its progress. It returns a result, or
// inputs, or an error, which is *becameTask if the call goes on as a task. The plan is nil
// if it must not.
func (v *view) call(ctx context.Context, req callRequest, state string, answers mcp.InputResponseMap, call *ferrule.Call, plan *taskPlan) (*ferrule.Result, *inputs, error) {
	session, _ := req.GetSession().(*mcp.ServerSession)
	params, _ := req.GetParams().(mcp.RequestParams)
	report := v.server.newReporter(ctx, session, params.GetProgressToken())
	defer report.end()
	if limit := profileOf(ctx).answerIn(req.ProtocolVersion()); limit > 0 { // there is no time for questions
		result, err := v.callWithin(ctx, report, call, limit)
		return result, nil, withoutNeeds(err)
	}
	call.Askable = askable(clientCan(ctx, req))
	if req.ProtocolVersion() < mcphttp.StatelessVersion {
		call.Progress = report.report
		over := make(chan struct{})
		defer close(over)
		if call.Askable != nil {
			call.Ask = asker(ctx, session, call.Askable, over)
		}
		result, err := v.server.handle(ctx, call)
		return result, nil, withoutNeeds(err)
	}
	switch {
	case state == "" && call.Askable == nil && plan == nil:
		result, err := v.callOnly(ctx, report, call)
		return result, nil, err
	case state == "":
		if plan != nil {
			call.ID = v.server.newCallID() // the record of the task has it
		}
		return v.start(ctx, report, answers, call).wait(ctx, report, plan)
	}
	c := v.server.pending.take(state, v.subjectOf(call), call.Args)
	if c == nil {
		return nil, nil, errState
	}
	c.answer(answers)
	return c.wait(ctx, report, plan)
}

// callOnly makes a call for a stateless agent that cannot be asked anything: the call
// does not outlive its request.
func (v *view) callOnly(ctx context.Context, report *reporter, call *ferrule.Call) (*ferrule.Result, error) {
	c := &pendingCall{view: v}
	call.Progress, call.Ask = report.report, c.ask
	c.result, c.err = v.server.handle(ctx, call)
	return c.result, c.failure()
}

// withoutNeeds removes the missing capabilities from an error, for versions that do
// not have that error.
func withoutNeeds(err error) error {
	var e *ferrule.Error
	if !errors.As(err, &e) || e.Needs == nil {
		return err
	}
	without := *e
	without.Needs = nil
	return &without
}

// errState is the error for a state that cannot be used. The state of the call that it
// belonged to is not known.
var errState = badParams("requestState is not valid here: it was changed, was used before, belongs to another request, " +
	"or its call has timed out waiting for an answer. Nothing was called now. The earlier call may have run in part: check the device before you call again.")

// asker returns a function that asks an agent of a version with sessions: in the stream
// of its request, or after the call, in its stream of notifications.
func asker(ctx context.Context, session *mcp.ServerSession, can []ferrule.AskTarget, over <-chan struct{}) func(context.Context, ferrule.Question) (ferrule.Answer, error) {
	return func(asking context.Context, q ferrule.Question) (answer ferrule.Answer, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = ferrule.Errorf(ferrule.Internal, "the gateway failed at this question: %v", r)
			}
		}()
		if !slices.Contains(can, q.Needs()) {
			return answer, cannotAsk(q.Needs())
		}
		request, err := inputRequest(q)
		if err != nil {
			return answer, err
		}
		if !q.Late {
			return askNow(asking, ctx, session, q, request)
		}
		select {
		case <-over:
			return askNow(asking, asking, session, q, request)
		case <-asking.Done():
			return answer, context.Cause(asking)
		}
	}
}

// pendingCall is a call of a stateless agent, which may outlive the request that began
// it.
type pendingCall struct {
	view    *view
	call    *ferrule.Call // the pipeline changes it until the end
	id      string        // of the call in the journal; empty if the pipeline chooses it
	subject requestSubject
	args    json.RawMessage
	can     []ferrule.AskTarget
	cancel  context.CancelCauseFunc
	asked   chan struct{} // holds a value if a question was asked since wait looked
	over    chan struct{} // closed when the call has ended and the result is set

	result *ferrule.Result
	err    error

	mu     sync.Mutex
	report *reporter                // of the request that waits; nil without one
	given  mcp.InputResponseMap     // answers that came before the questions, by name
	open   map[string]*openQuestion // by name
	needs  []ferrule.AskTarget      // who should have been asked and cannot be
	doing  string                   // the last message of its progress
	job    *ferrule.Job             // that the device runs by itself; nil without one
	task   *tasks.Running           // nil unless it has become a task

	becameTask chan struct{} // closed when task is set

	// Guarded by the mutex of pendingCalls.
	state string
	ended bool
}

// openQuestion is a question without an answer.
type openQuestion struct {
	ferrule.Question
	request mcp.InputRequest
	answer  chan ferrule.Answer // holds one
}

// start begins a call.
func (v *view) start(ctx context.Context, report *reporter, given mcp.InputResponseMap, call *ferrule.Call) *pendingCall {
	c, run := v.newPending(ctx, report, given, call)
	go run()
	return c
}

// newPending returns a call that begins when run is called. Run returns when it has ended.
func (v *view) newPending(ctx context.Context, report *reporter, given mcp.InputResponseMap, call *ferrule.Call) (c *pendingCall, run func()) {
	c = &pendingCall{
		view: v, call: call, id: call.ID, subject: v.subjectOf(call), args: call.Args, can: call.Askable, given: given, report: report,
		asked: make(chan struct{}, 1), over: make(chan struct{}), open: make(map[string]*openQuestion),
		becameTask: make(chan struct{}),
	}
	ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	call.Progress, call.Ask = c.progress, c.ask
	if call.ID != "" {
		call.Began = c.began
	}
	return c, func() {
		defer close(c.over)
		defer c.cancel(nil)
		c.result, c.err = v.server.handle(ctx, call)
		v.server.pending.forget(c)
	}
}

// progress reports progress to the agent, if a request of it waits, or to its task.
func (c *pendingCall) progress(p ferrule.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Log == nil {
		c.doing = p.Text(c.subject.device)
		if c.task != nil {
			c.task.Report(c.doing)
		}
	}
	if c.report != nil {
		c.report.report(p)
	}
}

// errLeft is why a call is cancelled whose agent does not come back.
var errLeft = errors.New("the agent was asked something and did not come back with an answer")

// ask asks a question and waits for the answer. If the agent does not come back, the
// call is cancelled a moment before its deadline.
func (c *pendingCall) ask(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
	left := time.Hour
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
		left -= min(time.Second, left/20)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, left, errLeft)
	defer cancel()
	answer, err := c.askBefore(ctx, q)
	if context.Cause(ctx) == errLeft {
		c.cancel(errLeft)
	}
	return answer, err
}

// askBefore asks a question and waits for the answer until ctx ends: in the next request, or
// in the task that the call has become.
func (c *pendingCall) askBefore(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
	question, name, err := c.add(q)
	if err != nil {
		return ferrule.Answer{}, err
	}
	select {
	case answer := <-question.answer:
		return answer, nil
	case <-c.becameTask:
		if c.remove(name, question) {
			return c.task.Ask(ctx, q)
		}
		return <-question.answer, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.over:
		err = errors.New("the call has ended")
	}
	c.remove(name, question)
	return ferrule.Answer{}, err
}

// add adds a question under a unique name. Its answer may be there already.
func (c *pendingCall) add(q ferrule.Question) (question *openQuestion, name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.can, q.Needs()) {
		c.needs = []ferrule.AskTarget{q.Needs()}
		return nil, "", cannotAsk(q.Needs())
	}
	if len(c.open) >= maxQuestions {
		return nil, "", fmt.Errorf("too many open questions: limit is %d", maxQuestions)
	}
	request, err := inputRequest(q)
	if err != nil {
		return nil, "", err
	}
	base := cmp.Or(ferrule.Clean(q.Name, ferrule.MaxWord), "question")
	name = base
	for n := 2; c.open[name] != nil; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	question = &openQuestion{q, request, make(chan ferrule.Answer, 1)}
	if answer, ok := answerTo(q, c.given[name]); ok {
		delete(c.given, name)
		question.answer <- answer
		return question, name, nil
	}
	c.open[name] = question
	c.wake()
	return question, name, nil
}

// wake makes wait look at the questions.
func (c *pendingCall) wake() {
	select {
	case c.asked <- struct{}{}:
	default:
	}
}

// remove withdraws a question. It reports whether the question was open.
func (c *pendingCall) remove(name string, question *openQuestion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.open[name] == question
	if open {
		delete(c.open, name)
	}
	return open
}

// answer answers open questions. Questions without a valid answer are asked again;
// answers without a question are ignored.
func (c *pendingCall) answer(responses mcp.InputResponseMap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, question := range c.open {
		if answer, ok := answerTo(question.Question, responses[name]); ok {
			question.answer <- answer
			delete(c.open, name)
		}
	}
	if len(c.open) > 0 {
		c.wake()
	}
}

// wait waits for the result, or for questions, or until it is time to become a task. If the
// agent cancels its request meanwhile, the call is cancelled.
func (c *pendingCall) wait(ctx context.Context, report *reporter, plan *taskPlan) (*ferrule.Result, *inputs, error) {
	var slow <-chan time.Time
	if plan != nil {
		timer := time.NewTimer(plan.after)
		defer timer.Stop()
		slow = timer.C
	}
	c.attach(report)
	defer c.attach(nil)
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	defer stop()
	for {
		select {
		case <-c.over:
			return c.result, nil, c.failure()
		case <-slow:
			if task := c.promote(ctx, plan); task != nil {
				return nil, nil, &becameTask{task}
			}
			plan = nil
			continue
		case <-c.asked:
		}
		if plan != nil && plan.asks {
			if task := c.promote(ctx, plan); task != nil {
				return nil, nil, &becameTask{task}
			}
			plan, slow = nil, nil
		}
		select {
		case <-c.over:
			return c.result, nil, c.failure()
		case <-time.After(gatherTime):
		}
		if in := c.inputs(); in != nil {
			return nil, in, nil
		}
	}
}

func (c *pendingCall) attach(report *reporter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report = report
}

// failure returns the error of the call, with the capability that the agent lacks if
// that may be the reason.
func (c *pendingCall) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil || c.needs == nil {
		return c.err
	}
	e := *ferrule.AsError(c.err)
	if e.Code == ferrule.Refused || e.Code == ferrule.Failed {
		e.Needs = c.needs
	}
	return &e
}

// inputs returns what the agent must find out; nil if no question is open.
func (c *pendingCall) inputs() *inputs {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return nil
	}
	in := &inputs{requests: make(mcp.InputRequestMap)}
	for name, question := range c.open {
		in.requests[name] = question.request
	}
	var ok bool
	if in.state, ok = c.view.server.pending.put(c); !ok {
		c.cancel(fmt.Errorf("too many calls wait for answers of agents: limit is %d", maxPending))
		return nil
	}
	return in
}
