package calls

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Listener serves the calls of other nodes over one engine. Listen and Stop must not be
// called concurrently.
type Listener struct {
	calls  *Calls
	engine *engine.Engine
	sub    *nats.Subscription

	mu      sync.Mutex
	stopped bool // no call is started
	workers *workers
	cancel  context.CancelFunc // cancels running calls
}

// Listener returns a listener that has not started.
func (c *Calls) Listener(e *engine.Engine) *Listener { return &Listener{calls: c, engine: e} }

// Listen starts to serve calls, unless it has started. Calls are cancelled when ctx
// ends.
func (l *Listener) Listen(ctx context.Context) (err error) {
	if l.sub != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	l.stopped, l.cancel, l.workers = false, cancel, newWorkers()
	l.sub, err = l.engine.Conn.Subscribe(l.subject("*"), func(msg *nats.Msg) { l.receive(ctx, msg) })
	if err != nil {
		cancel()
		return fmt.Errorf("listening to other nodes: %w", err)
	}
	l.sub.SetPendingLimits(1<<17, 1<<28)
	return nil
}

func (l *Listener) subject(verb string) string {
	c := l.calls
	return c.names.Request(c.names.Node, c.options.Boot, verb)
}

// Stop cancels running calls and waits for them.
func (l *Listener) Stop() {
	if l.sub == nil {
		return
	}
	l.sub.Unsubscribe()
	l.sub = nil
	l.cancel()
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.workers.close()
}

func (l *Listener) receive(ctx context.Context, msg *nats.Msg) {
	c := l.calls
	verb := msg.Subject[len(l.subject("")):]
	from, number, err := parseReply(c.names.Subject("reply."), msg.Reply)
	var data []byte
	if err == nil {
		data, err = c.keys.open(from, verb+" "+msg.Reply, msg.Data)
	}
	if err != nil {
		c.refuse(verb, msg)
		return
	}
	msg.Data = data
	to := caller{engine: l.engine, keys: c.keys, run: from, reply: msg.Reply, number: number}
	switch verb {
	case verbCall:
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.stopped {
			c.accept(ctx, to, msg, l.workers)
		}
	case verbCancel:
		c.inbox.cancel(msg.Reply)
	case verbAnswer:
		var a answer
		if json.Unmarshal(msg.Data, &a) == nil {
			c.inbox.answered(msg.Reply, a)
		}
	case verbAsk:
		age, _ := binary.Varint(msg.Data)
		to.send(c.inbox.ask(from, number, msg.Reply, time.Duration(min(max(age, 0), math.MaxInt64/4)))...)
	}
}

// refusals limits how many refused calls are reported; the others are only dropped.
// A client of NATS must not be able to fill the journal.
type refusals struct {
	mu      sync.Mutex
	limiter ratelimit.Limiter
}

func (r *refusals) report() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limiter.Allow(ratelimit.PerMinute(60), time.Now())
}

// refuse drops a message that no node of this tenant vouches for, and reports it if it is
// a call. Nobody is answered: the reply subject is as untrue as the rest.
func (c *Calls) refuse(verb string, msg *nats.Msg) {
	if verb != verbCall || !c.refused.report() {
		return
	}
	c.options.Log.Warn("cluster: refused a call that no node of this tenant vouches for", "subject", msg.Subject, "reply", ferrule.Clean(msg.Reply, ferrule.MaxURI))
	var req request
	data := msg.Data[min(tagSize, len(msg.Data)):]
	if json.Unmarshal(data, &req) != nil {
		json.Unmarshal(msg.Data, &req)
	}
	c.options.Refused(&req.Call)
}

// caller is a node that waits for the outcome of a call.
type caller struct {
	engine *engine.Engine
	keys   *keys
	run    run
	reply  string
	number uint64
}

// send sends frames. They may get lost: the inbox keeps them.
func (to caller) send(frames ...[]byte) error {
	for _, f := range frames {
		data, err := to.keys.seal(to.run, to.reply, f)
		if err == nil {
			err = to.engine.Conn.Publish(to.reply, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// accept starts to serve a call.
func (c *Calls) accept(ctx context.Context, to caller, msg *nats.Msg, workers *workers) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.inbox.enter(to.run, to.number, to.reply, cancel)
	if err != nil {
		cancel()
		if errors.Is(err, errFull) {
			to.send(frame(frameError, ferrule.Errorf(ferrule.Busy, "node %s is serving %d calls, which is its limit", c.names.Node, maxServed)))
		}
		return
	}
	workers.run(func() {
		defer cancel()
		final := split(c.serve(ctx, to, msg.Data, s), int(to.engine.Conn.MaxPayload())-tagSize)
		c.inbox.leave(to.reply, s, final)
		to.send(final...)
	})
}

// serve serves a call of another node, and returns its final frame.
func (c *Calls) serve(ctx context.Context, to caller, data []byte, s *served) []byte {
	failed := func(err error) []byte { return frame(frameError, ferrule.AsError(err)) }
	req, err := parseRequest(data)
	if err != nil {
		return failed(ferrule.Errorf(ferrule.Invalid, "node %s cannot parse the call: %w", c.names.Node, err))
	}
	call := &req.Call
	call.Parent, call.Via = ferrule.Traceparent(call.Parent), to.run.node
	if call.Principal.Role == ferrule.Gateway && call.Operation == ferrule.CallTool { // a poll is neither limited nor recorded
		return failed(ferrule.Errorf(ferrule.Denied, "node %s cannot poll a device of node %s", to.run.node, c.names.Node))
	}
	if call.Device == ferrule.GatewayID {
		// The gateway's own tools have neither an epoch nor a Kind.
	} else if held, ok := c.options.Devices.Held(call.Device, req.Epoch); ok {
		target, err := targetOf(held, req)
		if err != nil {
			return failed(err)
		}
		call.Target = target
	} else {
		return []byte{frameMoved}
	}
	if req.Ask {
		call.Verdict = ferrule.Verdict{Ruling: ferrule.Ask, Reason: "the policy of node " + to.run.node + ", where the call comes from, requires it"}
	}
	if req.Reports {
		call.Progress = func(p ferrule.Progress) { to.send(frame(frameProgress, p)) }
	}
	if req.Asks {
		call.Ask = func(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
			return c.ask(ctx, to, s, q)
		}
	}
	if call.Timeout < 0 || req.Deadline < 0 {
		return failed(ferrule.Errorf(ferrule.Busy, "the deadline had passed when the call was sent"))
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(time.Duration(req.Deadline), time.Duration(call.Timeout), maxTime))
	defer cancel()
	result, err := c.recovered(ctx, call)
	if err != nil {
		return failed(err)
	}
	return req.resultFrame(result)
}

// recovered calls a handler. A panic fails this call only.
func (c *Calls) recovered(ctx context.Context, call *ferrule.Call) (result *ferrule.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			c.options.Log.Error("panic in a call of another node", "call", call.ID, "device", call.Device, "tool", call.Tool, "err", r)
			result, err = nil, ferrule.Errorf(ferrule.Internal, "node %s failed: %v", c.names.Node, r).AfterSend()
		}
	}()
	return c.options.Serve(ctx, call)
}

// targetOf returns the target of a call, if it is what the caller's node expects.
func targetOf(held ferrule.Target, req *request) (ferrule.Target, error) {
	dev, manifest := held.Device, held.Manifest
	switch {
	case dev.Kind != req.Kind || manifest == nil:
		return ferrule.Target{}, changed(dev)
	case dev.State == ferrule.StateReleased: // a call may wait for one that is offline
		return ferrule.Target{}, dev.OfflineError()
	case dev.Trust == ferrule.TrustPending:
		return ferrule.Target{}, ferrule.Errorf(ferrule.Pending, "%s waits to be adopted", dev.ID).WithHint("run `ferrule adopt %s` to trust it", dev.ID)
	}
	tool := manifest.ToolFor(req.Call.Operation, req.Call.Tool)
	switch {
	case tool == nil:
		return ferrule.Target{}, changed(dev)
	case tool.Quarantine != "":
		return ferrule.Target{}, ferrule.Errorf(ferrule.Denied, "%s on %s is quarantined: %s", tool.Name, dev.ID, tool.Quarantine)
	case severity(tool.Effect) > severity(req.Effect):
		return ferrule.Target{}, ferrule.Errorf(ferrule.Denied, "nodes disagree about %s on %s: its effect is %q on its own node and %q on yours", tool.Name, dev.ID, tool.Effect, req.Effect).
			WithHint("give all nodes the same overlays")
	}
	return ferrule.Target{Device: dev, Manifest: manifest, Tool: tool}, nil
}

// ask asks the caller on the other node a question of the device.
func (c *Calls) ask(ctx context.Context, to caller, s *served, q ferrule.Question) (ferrule.Answer, error) {
	if q.Late { // the other node no longer listens
		return ferrule.Answer{}, errors.New("the call has ended, and its caller on another node cannot be asked any more")
	}
	number, answered := c.inbox.question(s)
	if err := to.send(frame(frameQuestion, question{number, q})); err != nil {
		return ferrule.Answer{}, err
	}
	select {
	case a := <-answered:
		if a.Error != "" {
			return ferrule.Answer{}, errors.New(ferrule.Clean(a.Error, ferrule.MaxText))
		}
		return a.Answer, nil
	case <-ctx.Done():
		return ferrule.Answer{}, ctx.Err()
	}
}
