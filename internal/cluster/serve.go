package cluster

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

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of a holder's memory of calls.
const (
	mostServed = 8192             // calls that are served at once
	keepTime   = 30 * time.Second // how long the end of one is kept
	mostKept   = 65536
	keptBytes  = 32 << 20
	maxTime    = 10 * time.Minute // of a call without a deadline
	slack      = 2 * time.Second  // how long a question about one may be under way
)

// inbox is the calls of other nodes that this node serves or has served a moment
// ago, by where their answers go: a call that comes twice is served once, and who
// asks what became of one is told.
type inbox struct {
	mu      sync.Mutex
	calls   map[string]*served
	kept    []string // those that have ended, oldest first
	bytes   int
	running int
	// forgotten is when the newest call came that is no longer kept. One that was
	// certainly sent after it and is not here has never come.
	forgotten time.Time
}

// served is a call of another node.
type served struct {
	came   time.Time
	ended  time.Time
	cancel context.CancelFunc // nil of one that was asked about before it came
	end    [][]byte           // what was said in the end; nil while it runs
	size   int

	answers map[int]chan answer // to questions that are open
	count   int
}

func newInbox() *inbox { return &inbox{calls: make(map[string]*served), forgotten: time.Now()} }

var (
	errTwice = errors.New("it has come before")
	errFull  = errors.New("too many calls at once")
)

// enter takes a call in, unless it has been here.
func (i *inbox) enter(reply string, cancel context.CancelFunc) (*served, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.calls[reply] != nil {
		return nil, errTwice
	}
	if i.running >= mostServed {
		return nil, errFull
	}
	s := &served{came: time.Now(), cancel: cancel}
	i.calls[reply] = s
	i.running++
	return s, nil
}

// leave keeps the end of a call.
func (i *inbox) leave(reply string, s *served, end [][]byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running--
	i.keep(reply, s, end)
}

func (i *inbox) keep(reply string, s *served, end [][]byte) {
	s.end, s.ended, s.cancel, s.answers = end, time.Now(), nil, nil
	s.size = len(reply) + 200
	for _, f := range end {
		s.size += len(f)
	}
	i.bytes += s.size
	i.kept = append(i.kept, reply)
	old := s.ended.Add(-keepTime)
	for len(i.kept) > mostKept || i.bytes > keptBytes || len(i.kept) > 0 && i.calls[i.kept[0]].ended.Before(old) {
		first := i.calls[i.kept[0]]
		delete(i.calls, i.kept[0])
		i.kept = i.kept[1:]
		i.bytes -= first.size
		i.forgotten = later(i.forgotten, first.came)
	}
}

// ask tells what became of a call that was sent a while ago. One that has not come
// is refused from now on.
//
// The question was under way, too, so the call is older than it says. How much, only
// the caller can tell: it does not believe an answer to a question older than slack.
func (i *inbox) ask(reply string, age time.Duration) [][]byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.calls[reply]
	switch {
	case s != nil && s.end != nil:
		return s.end
	case s != nil:
		return [][]byte{{frameRunning}}
	case !time.Now().Add(-age - slack).After(i.forgotten):
		return [][]byte{{frameForgot}}
	}
	s = &served{came: time.Now()}
	i.calls[reply] = s
	i.keep(reply, s, [][]byte{unknown(age)})
	return [][]byte{unknown(age)}
}

// unknown says that a call has not come, which was as old as this when its caller
// asked.
func unknown(age time.Duration) []byte { return binary.AppendVarint([]byte{frameUnknown}, int64(age)) }

// cancel ends a call whose caller has gone away.
func (i *inbox) cancel(reply string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.calls[reply]; s != nil && s.cancel != nil {
		s.cancel()
	}
}

// answered passes on the answer to a question.
func (i *inbox) answered(reply string, a answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.calls[reply]; s != nil && s.answers[a.Number] != nil {
		s.answers[a.Number] <- a // it has room for one
		delete(s.answers, a.Number)
	}
}

// question opens a question.
func (i *inbox) question(s *served) (int, <-chan answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s.answers == nil {
		s.answers = make(map[int]chan answer)
	}
	s.count++
	ch := make(chan answer, 1)
	s.answers[s.count] = ch
	return s.count, ch
}

// ear is where this node hears what others ask of it. There is one subscription, however
// many devices it has.
type ear struct {
	bus    *Cluster
	engine *engine
	sub    *nats.Subscription

	mu     sync.Mutex
	deaf   bool // nothing more is begun
	hands  *hands
	cancel context.CancelFunc // ends what is served
}

// listen begins to serve what other nodes ask, if it has not begun. What is served ends
// with ctx.
func (l *ear) listen(ctx context.Context) (err error) {
	if l.sub != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	l.deaf, l.cancel, l.hands = false, cancel, newHands()
	b := l.bus
	l.sub, err = l.engine.conn.Subscribe(b.names.at(b.cfg.Node, b.boot, "*"), func(msg *nats.Msg) { l.receive(ctx, msg) })
	if err != nil {
		cancel()
		return fmt.Errorf("listening to other nodes: %w", err)
	}
	l.sub.SetPendingLimits(1<<17, 1<<28)
	return nil
}

// stop ends what is served, and waits for it.
func (l *ear) stop() {
	if l.sub == nil {
		return
	}
	l.sub.Unsubscribe()
	l.sub = nil
	l.cancel()
	l.mu.Lock()
	l.deaf = true
	l.mu.Unlock()
	l.hands.end()
}

func (l *ear) receive(ctx context.Context, msg *nats.Msg) {
	b := l.bus
	if msg.Reply == "" {
		return
	}
	switch verb := msg.Subject[len(b.names.at(b.cfg.Node, b.boot, "")):]; verb {
	case verbCall:
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.deaf {
			b.accept(ctx, l.engine, msg, l.hands)
		}
	case verbCancel:
		b.inbox.cancel(msg.Reply)
	case verbAnswer:
		var a answer
		if json.Unmarshal(msg.Data, &a) == nil {
			b.inbox.answered(msg.Reply, a)
		}
	case verbAsk:
		age, _ := binary.Varint(msg.Data)
		b.reply(l.engine, msg.Reply, b.inbox.ask(msg.Reply, time.Duration(min(max(age, 0), math.MaxInt64/4))))
	}
}

// reply sends an end to where it goes. That it gets lost is reckoned with: it is
// kept.
func (b *Cluster) reply(e *engine, to string, end [][]byte) {
	for _, f := range end {
		e.conn.Publish(to, f)
	}
}

// accept begins to serve a call.
func (b *Cluster) accept(ctx context.Context, e *engine, msg *nats.Msg, hands *hands) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := b.inbox.enter(msg.Reply, cancel)
	if err != nil {
		cancel()
		if errors.Is(err, errFull) {
			b.reply(e, msg.Reply, [][]byte{frame(frameError, ferrule.Errorf(ferrule.Busy, "node %s has as many calls as it can serve", b.cfg.Node))})
		}
		return
	}
	hands.do(func() {
		defer cancel()
		end := b.serve(ctx, e, msg, s)
		end = split(end[0], int(e.conn.MaxPayload()))
		b.inbox.leave(msg.Reply, s, end)
		b.reply(e, msg.Reply, end)
	})
}

// serve has the device do what another node's caller asks for, and returns what is
// to be said in the end.
func (b *Cluster) serve(ctx context.Context, e *engine, msg *nats.Msg, s *served) [][]byte {
	failed := func(err error) [][]byte { return [][]byte{frame(frameError, ferrule.AsError(err))} }
	var req request
	if err := json.Unmarshal(msg.Data, &req); err != nil {
		return failed(ferrule.Errorf(ferrule.Invalid, "node %s cannot read the call: %w", b.cfg.Node, err))
	}
	call, handle := req.Call, b.parts.Serve
	call.Parent = ferrule.Traceparent(call.Parent)
	if call.Device == ferrule.GatewayID {
		handle = b.parts.Decide
	} else if h, ok := b.view.holds(call.Device, req.Epoch); ok {
		target, err := targetOf(h, &req)
		if err != nil {
			return failed(err)
		}
		call.Target = target
	} else {
		return [][]byte{{frameMoved}}
	}
	if req.Reports {
		call.Progress = func(p ferrule.Progress) { e.conn.Publish(msg.Reply, frame(frameProgress, p)) }
	}
	if req.Asks {
		call.Ask = func(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
			return b.ask(ctx, e, msg.Reply, s, q)
		}
	}
	if call.Timeout < 0 {
		return failed(ferrule.Errorf(ferrule.Busy, "its time was over when it was sent"))
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(time.Duration(call.Timeout), maxTime))
	defer cancel()
	result, err := b.safely(ctx, handle, &call)
	if err != nil {
		return failed(err)
	}
	return [][]byte{frame(frameResult, result)}
}

// safely serves a call. A panic costs this call and nothing else.
func (b *Cluster) safely(ctx context.Context, handle ferrule.Handler, call *ferrule.Call) (result *ferrule.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			b.parts.Log.Error("a call of another node panicked", "call", call.ID, "device", call.Device, "tool", call.Tool, "err", r)
			result, err = nil, ferrule.Errorf(ferrule.Internal, "node %s failed at this call: %v", b.cfg.Node, r).AfterSend()
		}
	}()
	return handle(ctx, call)
}

// targetOf is what a call addresses here, if it is what the caller's node took it
// for.
func targetOf(h holding, req *request) (ferrule.Target, error) {
	dev := h.device
	switch {
	case dev.Kind != req.Kind || h.laid == nil:
		return ferrule.Target{}, changed(dev)
	case dev.State != ferrule.StateOnline:
		return ferrule.Target{}, dev.OfflineError()
	case dev.Trust == ferrule.TrustPending:
		return ferrule.Target{}, ferrule.Errorf(ferrule.Pending, "%s is not trusted any more", dev.ID).WithHint("`ferrule adopt %s` trusts it", dev.ID)
	}
	tool := h.laid.ToolFor(req.Call.Operation, req.Call.Tool)
	switch {
	case tool == nil:
		return ferrule.Target{}, changed(dev)
	case tool.Quarantine != "":
		return ferrule.Target{}, ferrule.Errorf(ferrule.Denied, "%s of %s cannot be used: %s", tool.Name, dev.ID, tool.Quarantine)
	case severity(tool.Effect) > severity(req.Effect):
		return ferrule.Target{}, ferrule.Errorf(ferrule.Denied, "%s of %s %s, says the node that holds it, and yours says that it only %s", tool.Name, dev.ID, tool.Effect, req.Effect).
			WithHint("give all nodes the same overlays")
	}
	return ferrule.Target{Device: dev, Manifest: h.laid, Tool: tool}, nil
}

// ask asks the caller on the other node something.
func (b *Cluster) ask(ctx context.Context, e *engine, reply string, s *served, q ferrule.Question) (ferrule.Answer, error) {
	number, said := b.inbox.question(s)
	if err := e.conn.Publish(reply, frame(frameQuestion, question{number, q})); err != nil {
		return ferrule.Answer{}, err
	}
	select {
	case a := <-said:
		if a.Error != "" {
			return ferrule.Answer{}, errors.New(ferrule.Clean(a.Error, ferrule.MaxText))
		}
		return a.Answer, nil
	case <-ctx.Done():
		return ferrule.Answer{}, ctx.Err()
	}
}
