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
	if msg.Reply == "" {
		return
	}
	switch verb := msg.Subject[len(l.subject("")):]; verb {
	case verbCall:
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.stopped {
			c.accept(ctx, l.engine, msg, l.workers)
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
		reply(l.engine, msg.Reply, c.inbox.ask(msg.Reply, time.Duration(min(max(age, 0), math.MaxInt64/4))))
	}
}

// reply sends frames. They may get lost: the inbox keeps them.
func reply(e *engine.Engine, to string, frames [][]byte) {
	for _, f := range frames {
		e.Conn.Publish(to, f)
	}
}

// accept starts to serve a call.
func (c *Calls) accept(ctx context.Context, e *engine.Engine, msg *nats.Msg, workers *workers) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.inbox.enter(msg.Reply, cancel)
	if err != nil {
		cancel()
		if errors.Is(err, errFull) {
			reply(e, msg.Reply, [][]byte{frame(frameError, ferrule.Errorf(ferrule.Busy, "node %s is serving %d calls, which is its limit", c.names.Node, maxServed))})
		}
		return
	}
	workers.run(func() {
		defer cancel()
		final := split(c.serve(ctx, e, msg, s), int(e.Conn.MaxPayload()))
		c.inbox.leave(msg.Reply, s, final)
		reply(e, msg.Reply, final)
	})
}

// serve serves a call of another node, and returns its final frame.
func (c *Calls) serve(ctx context.Context, e *engine.Engine, msg *nats.Msg, s *served) []byte {
	failed := func(err error) []byte { return frame(frameError, ferrule.AsError(err)) }
	var req request
	if err := json.Unmarshal(msg.Data, &req); err != nil {
		return failed(ferrule.Errorf(ferrule.Invalid, "node %s cannot parse the call: %w", c.names.Node, err))
	}
	call, handle := req.Call, c.options.Serve
	call.Parent = ferrule.Traceparent(call.Parent)
	if call.Device == ferrule.GatewayID {
		handle = c.options.Decide
	} else if held, ok := c.options.Devices.Held(call.Device, req.Epoch); ok {
		target, err := targetOf(held, &req)
		if err != nil {
			return failed(err)
		}
		call.Target = target
	} else {
		return []byte{frameMoved}
	}
	if req.Reports {
		call.Progress = func(p ferrule.Progress) { e.Conn.Publish(msg.Reply, frame(frameProgress, p)) }
	}
	if req.Asks {
		call.Ask = func(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
			return c.ask(ctx, e, msg.Reply, s, q)
		}
	}
	if call.Timeout < 0 {
		return failed(ferrule.Errorf(ferrule.Busy, "the deadline had passed when the call was sent"))
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(time.Duration(call.Timeout), maxTime))
	defer cancel()
	result, err := c.recovered(ctx, handle, &call)
	if err != nil {
		return failed(err)
	}
	return frame(frameResult, result)
}

// recovered calls a handler. A panic fails this call only.
func (c *Calls) recovered(ctx context.Context, handle ferrule.Handler, call *ferrule.Call) (result *ferrule.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			c.options.Log.Error("panic in a call of another node", "call", call.ID, "device", call.Device, "tool", call.Tool, "err", r)
			result, err = nil, ferrule.Errorf(ferrule.Internal, "node %s failed: %v", c.names.Node, r).AfterSend()
		}
	}()
	return handle(ctx, call)
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
func (c *Calls) ask(ctx context.Context, e *engine.Engine, reply string, s *served, q ferrule.Question) (ferrule.Answer, error) {
	if q.Late { // the other node no longer listens
		return ferrule.Answer{}, errors.New("the call has ended, and its caller on another node cannot be asked any more")
	}
	number, answered := c.inbox.question(s)
	if err := e.Conn.Publish(reply, frame(frameQuestion, question{number, q})); err != nil {
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
