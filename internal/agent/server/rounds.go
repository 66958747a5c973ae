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

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// A device may ask something while it serves a call. An agent of the older era is asked
// at once, within its request. One of the newer era is told what to find out, and its
// request ends; the call waits, and goes on when the agent comes back:
//
//	tools/call ──▶ run ──▶ the road ──▶ device
//	    ◀── questions, state    │ asks
//	tools/call, answers, state ─▶ goes on
//	    ◀── result
//
// A state is good for one request, of the same caller for the same thing. Whatever else
// comes back begins nothing: the device is called once.
const (
	maxOpen    = 16                    // questions of one call at once
	gatherTime = 20 * time.Millisecond // for the questions that a device asks together
)

// inquiry is a request of an agent that a device may ask something about.
type inquiry interface {
	mcp.Request
	ProtocolVersion() string
	ClientCapabilities() *mcp.ClientCapabilities
}

// inputs is what an agent has to find out before it comes back.
type inputs struct {
	requests mcp.InputRequestMap
	state    string
}

// take takes the road for an agent, and tells it how the call gets on. It returns a
// result, or inputs, or an error.
func (v *view) take(ctx context.Context, req inquiry, state string, answers mcp.InputResponseMap, call *ferrule.Call) (*ferrule.Result, *inputs, error) {
	session, _ := req.GetSession().(*mcp.ServerSession)
	params, _ := req.GetParams().(mcp.RequestParams)
	report := v.front.newReporter(ctx, session, params.GetProgressToken())
	defer report.end()
	call.Askable = askable(req.ClientCapabilities())
	if req.ProtocolVersion() < modernVersion {
		call.Progress = report.report
		if call.Askable != nil {
			call.Ask = v.asker(ctx, session, call)
		}
		result, err := v.front.handle(ctx, call)
		return result, nil, withoutNeeds(err)
	}
	switch {
	case state == "" && call.Askable == nil:
		result, err := v.takeAlone(ctx, report, call)
		return result, nil, err
	case state == "":
		return v.start(ctx, report, answers, call).wait(ctx, report)
	}
	r := v.front.waiting.take(state, v.purposeOf(call), call.Args)
	if r == nil {
		return nil, nil, errState
	}
	r.answer(answers)
	return r.wait(ctx, report)
}

// takeAlone takes the road for an agent of the newer era that cannot ask anybody: its call
// does not outlive its request.
func (v *view) takeAlone(ctx context.Context, report *reporter, call *ferrule.Call) (*ferrule.Result, error) {
	r := &run{view: v}
	call.Progress, call.Ask = report.report, r.ask
	r.result, r.err = v.front.handle(ctx, call)
	return r.result, r.wrong()
}

// withoutNeeds is an error to an agent of the older era, which has no word for that.
func withoutNeeds(err error) error {
	var e *ferrule.Error
	if !errors.As(err, &e) || e.Needs == nil {
		return err
	}
	told := *e
	told.Needs = nil
	return &told
}

// errState is why a state cannot be used. Nothing is known of the call that it was of.
var errState = badParams("requestState is not one that can be used here: it was changed, was used before, is of another request, " +
	"or its call has ended for want of an answer. Nothing was called now. The call that it was of may have run in part: look before you call again.")

// asker asks by way of an agent of the older era.
func (v *view) asker(ctx context.Context, session *mcp.ServerSession, call *ferrule.Call) func(context.Context, ferrule.Question) (ferrule.Answer, error) {
	device, can := call.Device, call.Askable
	return func(asking context.Context, q ferrule.Question) (answer ferrule.Answer, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = ferrule.Errorf(ferrule.Internal, "the gateway failed at this question: %v", r)
			}
		}()
		if !slices.Contains(can, q.Needs()) {
			return answer, nobody(q.Needs())
		}
		request, err := v.inputRequest(device, q)
		if err != nil {
			return answer, err
		}
		return askNow(asking, ctx, session, q, request)
	}
}

// run is a call of an agent of the newer era, which may outlive the request that
// began it.
type run struct {
	view    *view
	purpose purpose
	args    json.RawMessage
	can     []ferrule.AskTarget
	cancel  context.CancelCauseFunc
	asked   chan struct{} // holds something if a question was asked since somebody looked
	over    chan struct{} // closed when the call has ended: then the result is there

	result *ferrule.Result
	err    error

	mu     sync.Mutex
	report *reporter                // of the request that waits; nil while none does
	given  mcp.InputResponseMap     // answers that came before the questions, by name
	open   map[string]*openQuestion // by name
	needs  []ferrule.AskTarget      // who was to be asked and cannot be

	state string // by which it waits; guarded by the mu of those that wait
	ended bool   // likewise
}

// openQuestion is one that has no answer yet.
type openQuestion struct {
	ferrule.Question
	request mcp.InputRequest
	answer  chan ferrule.Answer // holds one
}

// start begins a call. A device may tell something at once.
func (v *view) start(ctx context.Context, report *reporter, given mcp.InputResponseMap, call *ferrule.Call) *run {
	r := &run{
		view: v, purpose: v.purposeOf(call), args: call.Args, can: call.Askable, given: given, report: report,
		asked: make(chan struct{}, 1), over: make(chan struct{}), open: make(map[string]*openQuestion),
	}
	ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	call.Progress, call.Ask = r.tell, r.ask
	go func() {
		defer close(r.over)
		defer r.cancel(nil)
		r.result, r.err = v.front.handle(ctx, call)
		v.front.waiting.forget(r)
	}()
	return r
}

// tell tells the agent how the call gets on, if it waits.
func (r *run) tell(p ferrule.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report != nil {
		r.report.report(p)
	}
}

// errLeft is why a call ends whose agent does not come back.
var errLeft = errors.New("the agent was asked something, and has not come back with an answer")

// ask has a question asked, and waits for the answer. An agent that does not come back
// in time has left: the call is cancelled a moment before it would be given up.
func (r *run) ask(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
	one, name, err := r.pose(q)
	if err != nil {
		return ferrule.Answer{}, err
	}
	defer r.close(name, one)
	patience := time.NewTimer(time.Hour)
	defer patience.Stop()
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		patience.Reset(left - min(time.Second, left/20))
	}
	select {
	case answer := <-one.answer:
		return answer, nil
	case <-patience.C:
		r.cancel(errLeft)
		return ferrule.Answer{}, errLeft
	case <-ctx.Done():
		return ferrule.Answer{}, context.Cause(ctx)
	case <-r.over:
		return ferrule.Answer{}, errors.New("the call has ended")
	}
}

// pose makes a question one that an agent is told of, under a name that no other has.
// An answer may be there already.
func (r *run) pose(q ferrule.Question) (one *openQuestion, name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.can, q.Needs()) {
		r.needs = []ferrule.AskTarget{q.Needs()}
		return nil, "", nobody(q.Needs())
	}
	if len(r.open) >= maxOpen {
		return nil, "", fmt.Errorf("%d questions are open; more are not possible", maxOpen)
	}
	request, err := r.view.inputRequest(r.purpose.device, q)
	if err != nil {
		return nil, "", err
	}
	base := cmp.Or(ferrule.Clean(q.Name, ferrule.MaxWord), "question")
	name = base
	for n := 2; r.open[name] != nil; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	one = &openQuestion{q, request, make(chan ferrule.Answer, 1)}
	if answer, ok := answerTo(q, r.given[name]); ok {
		delete(r.given, name)
		one.answer <- answer
		return one, name, nil
	}
	r.open[name] = one
	r.notice()
	return one, name, nil
}

// notice has whoever waits look at the questions.
func (r *run) notice() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// close takes back a question.
func (r *run) close(name string, one *openQuestion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[name] == one {
		delete(r.open, name)
	}
}

// answer gives the answers to questions. Those that have none, or none that fits, stay
// open and are asked again; what nobody has asked is ignored.
func (r *run) answer(responses mcp.InputResponseMap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, one := range r.open {
		if answer, ok := answerTo(one.Question, responses[name]); ok {
			one.answer <- answer
			delete(r.open, name)
		}
	}
	if len(r.open) > 0 {
		r.notice()
	}
}

// wait waits for the result, or for questions. If the agent cancels its request
// meanwhile, it cancels the call.
func (r *run) wait(ctx context.Context, report *reporter) (*ferrule.Result, *inputs, error) {
	r.attach(report)
	defer r.attach(nil)
	stop := context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })
	defer stop()
	for {
		select {
		case <-r.over:
			return r.result, nil, r.wrong()
		case <-r.asked:
		}
		select {
		case <-r.over:
			return r.result, nil, r.wrong()
		case <-time.After(gatherTime):
		}
		if in := r.inputs(); in != nil {
			return nil, in, nil
		}
	}
}

func (r *run) attach(report *reporter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report = report
}

// wrong is why the call failed. If somebody was to be asked who cannot be, that may be
// why.
func (r *run) wrong() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil || r.needs == nil {
		return r.err
	}
	e := *ferrule.AsError(r.err)
	if e.Code == ferrule.Refused || e.Code == ferrule.Failed {
		e.Needs = r.needs
	}
	return &e
}

// inputs is what the agent has to find out; nil if nothing is open any more.
func (r *run) inputs() *inputs {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) == 0 {
		return nil
	}
	in := &inputs{requests: make(mcp.InputRequestMap)}
	for name, one := range r.open {
		in.requests[name] = one.request
	}
	var ok bool
	if in.state, ok = r.view.front.waiting.put(r); !ok {
		r.cancel(fmt.Errorf("%d calls wait for agents to come back with answers; more are not possible", maxWaiting))
		return nil
	}
	return in
}
