package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// A program may give up on a call sooner than its device needs. It is then told that the call
// is still running, before it gives up, and the call goes on:
//
//	tools/call ──▶ pipeline ──▶ device
//	    ◀── still running            │
//	tools/call, the same ──▶ waits   │
//	    ◀── result of the first ◀────┘
//
// While the call runs, and for a while afterwards, the same call by the same caller gets its
// outcome, and the device is not called a second time. A stop is never swallowed in this way,
// nor what can be repeated, such as switching something off, after its caller has changed
// something else of the device.
const (
	maxRunning = 256
	// keepOutcome is how long an outcome is kept for a caller that asks again.
	keepOutcome = time.Minute
)

// runningCalls are calls whose caller was told that they are still running.
type runningCalls struct {
	mu    sync.Mutex
	calls map[runningKey]*runningCall
}

// runningKey identifies a call: equal ones have the same.
type runningKey struct {
	requestSubject
	kind ferrule.Kind // of the device
	args string
}

// runningCall is a call, and when it began.
type runningCall struct {
	*pendingCall
	since      time.Time
	repeatable bool // it does no harm to call it a second time
}

// stillRunning is the error of a call that goes on.
type stillRunning struct {
	what   string
	since  time.Time
	joined bool // the same call can be made to wait for the outcome
}

func (e *stillRunning) Error() string {
	return fmt.Sprintf("%s is still running, after %s", e.what, ago(e.since))
}

func ago(since time.Time) string {
	return fmt.Sprintf("%d seconds", int(time.Since(since).Round(time.Second)/time.Second))
}

// callWithin makes a call, or joins one that is still running, and waits for its outcome for a
// while. If the caller leaves before that, the call that it began is cancelled.
func (v *view) callWithin(ctx context.Context, report *reporter, call *ferrule.Call, limit time.Duration) (*ferrule.Result, error) {
	key, what, stops := v.runningKey(call), call.Tool+" of "+call.Device, call.Stops() // the pipeline changes the call
	var c *runningCall
	if !stops {
		c = v.server.running.find(key)
	}
	joined := c != nil
	if !joined {
		_, tool := v.server.seenBy(ctx).Tool(call.Device, call.Tool)
		if tool == nil || tool.Effect != ferrule.Reads {
			v.server.running.outdate(key)
		}
		repeatable := tool != nil && (tool.Idempotent || tool.Effect == ferrule.Reads)
		c = &runningCall{v.start(ctx, report, nil, call), time.Now(), repeatable}
		defer c.attach(nil)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.over:
	case <-ctx.Done():
		if !joined {
			c.cancel(context.Cause(ctx))
			<-c.over
		}
		return nil, ferrule.Errorf(ferrule.Cancelled, "%w", context.Cause(ctx))
	case <-timer.C:
		kept := joined || !stops && v.server.running.keep(key, c)
		return nil, &stillRunning{what: what, since: c.since, joined: kept}
	}
	if !joined {
		return c.result, c.failure()
	}
	v.server.running.drop(key, c)
	return late(c.result, c.since), c.failure()
}

// runningKey returns the key of a call.
func (v *view) runningKey(call *ferrule.Call) runningKey {
	args := string(call.Args)
	if values, _, err := schema.DecodeArgs(call.Args); err == nil {
		if sorted, err := schema.Encode(values); err == nil {
			args = string(sorted)
		}
	}
	key := runningKey{requestSubject: v.subjectOf(call), args: args}
	if dev, ok := v.server.device(call.Device); ok {
		key.kind = dev.Kind
	}
	return key
}

// outdate forgets calls that can be repeated, because their caller begins to change something
// else of the device: a light that was switched off before may be on then.
func (r *runningCalls) outdate(by runningKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, c := range r.calls {
		if c.repeatable && key.who == by.who && key.device == by.device {
			delete(r.calls, key)
		}
	}
}

// find returns a call that is still running, or whose outcome nobody has yet.
func (r *runningCalls) find(key runningKey) *runningCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[key]
}

// keep remembers a call while it runs and for keepOutcome afterwards. It reports whether there
// was room.
func (r *runningCalls) keep(key runningKey, c *runningCall) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) >= maxRunning {
		return false
	}
	if r.calls == nil {
		r.calls = make(map[runningKey]*runningCall)
	}
	r.calls[key] = c
	go func() {
		<-c.over
		time.AfterFunc(keepOutcome, func() { r.drop(key, c) })
	}()
	return true
}

// drop forgets a call.
func (r *runningCalls) drop(key runningKey, c *runningCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[key] == c {
		delete(r.calls, key)
	}
}

// late returns the result of a call that began before its caller asked for it.
func late(r *ferrule.Result, since time.Time) *ferrule.Result {
	if r == nil {
		return nil
	}
	out := *r
	out.Content = []ferrule.Content{{Type: ferrule.TextContent, Text: "This is the outcome of the call that began " + ago(since) + " ago. Nothing was called now."}}
	if r.Content == nil {
		out.Content = append(out.Content, ferrule.Content{Type: ferrule.TextContent, Text: text(plain(r.Value))})
	}
	out.Content = append(out.Content, r.Content...)
	return &out
}

// result converts the error to a result. It is not an error: nothing has failed yet.
func (e *stillRunning) result(stateless bool) *mcp.CallToolResult {
	text := fmt.Sprintf("%s is still running, after %s. It goes on, and its outcome is not known yet.", e.what, ago(e.since))
	if e.joined {
		text += " Call it again with the same arguments to wait for the outcome: that does not start it a second time."
	} else {
		text += " Do not call it again: check the device first."
	}
	out := callResults.of(stateless)
	out.Content = []mcp.Content{&mcp.TextContent{Text: text}}
	return &out
}
