package cluster

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The patience of a caller's node.
const (
	askAfter  = 500 * time.Millisecond // without news of a call, its holder is asked
	askAgain  = 250 * time.Millisecond // if nobody heard
	unheardOf = 8                      // asks that nobody heard: the holder has gone
	tries     = 3                      // sendings of a call that does not arrive
	lastWords = 500 * time.Millisecond // for the holder to say what became of a call that is over
	linkTime  = 2 * time.Second        // for a connection that was lost to be back
)

// outgoing is a call to another node, as long as it is waited for.
type outgoing struct {
	end    chan []byte   // the end, whole
	frames chan []byte   // what comes before it; some may be lost
	nobody chan struct{} // a message found no one
	poke   chan struct{} // something may have been missed
	parts  parts         // of an end that comes in parts; used by the receiver only
}

// outbox is the calls that are waited for, by their tokens.
type outbox struct {
	boot string // so that tokens differ between runs

	mu    sync.Mutex
	calls map[string]*outgoing
	count uint64
}

func newOutbox(boot string) *outbox { return &outbox{boot: boot, calls: make(map[string]*outgoing)} }

func (o *outbox) open() (string, *outgoing) {
	out := &outgoing{end: make(chan []byte, 1), frames: make(chan []byte, 16), nobody: make(chan struct{}, 4), poke: make(chan struct{}, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	token := o.boot + "-" + strconv.FormatUint(o.count, 36)
	o.calls[token] = out
	return token, out
}

func (o *outbox) close(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.calls, token)
}

// pokeAll has every call's holder asked: the connection was lost, and with it
// perhaps what they said.
func (o *outbox) pokeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, out := range o.calls {
		select {
		case out.poke <- struct{}{}:
		default:
		}
	}
}

// receive takes in what holders send. It never blocks.
func (o *outbox) receive(msg *nats.Msg) {
	token := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	o.mu.Lock()
	out := o.calls[token]
	o.mu.Unlock()
	switch {
	case out == nil: // it is not waited for any more
	case len(msg.Data) == 0:
		if msg.Header.Get("Status") == "503" {
			select {
			case out.nobody <- struct{}{}:
			default:
			}
		}
	default:
		out.take(msg.Data)
	}
}

func (out *outgoing) take(data []byte) {
	to := out.frames
	switch data[0] {
	case framePart:
		if data = out.parts.take(data); len(data) == 0 {
			return
		}
		to = out.end
	case frameResult, frameError, frameMoved, frameUnknown, frameForgot:
		to = out.end
	}
	select {
	case to <- data:
	default:
	}
}

// Why a call did not get to its device, although it was sent off: it may be sent
// again.
var (
	errNobody = errors.New("its node does not answer")
	errMoved  = errors.New("its node does not hold it any more")
	errMissed = errors.New("the call did not arrive")
)

// call is the way to every device of other nodes.
func (b *Cluster) call(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return b.measured(ctx, call, b.reach)
}

// measured has the way to another node measured. The Parent that the call has
// meanwhile is for that node alone.
func (b *Cluster) measured(ctx context.Context, call *ferrule.Call, way ferrule.Handler) (*ferrule.Result, error) {
	parent := call.Parent
	ctx, span := b.sending.Begin(ctx, call)
	result, err := way(ctx, call)
	b.sending.End(span, call, err)
	call.Parent = parent
	return result, err
}

// reach has the holder of a device serve a call. It reaches one holder at most, once at
// most: it is sent again only if it is certain that it did not arrive, and never will.
func (b *Cluster) reach(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	dev := call.Target.Device
	reread := false
	for left := tries - 1; ; left-- {
		result, err := b.send(ctx, call, dev)
		if err == nil || left == 0 || !errors.Is(err, errNobody) && !errors.Is(err, errMoved) && !errors.Is(err, errMissed) {
			return result, b.plain(dev, err)
		}
		if errors.Is(err, errMissed) {
			continue
		}
		fresh := b.reread(ctx, dev.ID)
		if reread || fresh == nil || fresh.Node == dev.Node && fresh.Epoch == dev.Epoch {
			return nil, b.plain(dev, err)
		}
		reread = true
		switch {
		case fresh.Kind != dev.Kind || fresh.Trust != dev.Trust || !fresh.SameHardware(dev):
			return nil, changed(dev)
		case fresh.State != ferrule.StateOnline:
			return nil, fresh.OfflineError()
		case fresh.Node == b.cfg.Node:
			return b.here(ctx, call, fresh)
		}
		dev = fresh
	}
}

// Decide passes on a call of the gateway's own tools to the node that it concerns.
func (b *Cluster) Decide(ctx context.Context, node string, call *ferrule.Call) (*ferrule.Result, error) {
	result, err := b.measured(ctx, call, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return b.send(ctx, call, &ferrule.Device{ID: ferrule.GatewayID, Node: node})
	})
	if errors.Is(err, errNobody) || errors.Is(err, errMissed) {
		return nil, ferrule.Errorf(ferrule.Offline, "node %s does not answer, and it is for that node to decide", node).
			WithHint("try again when it is there; `ferrule devices` tells")
	}
	return result, err
}

func changed(dev *ferrule.Device) error {
	return ferrule.Errorf(ferrule.Invalid, "%s is no longer what it was when the call was made", dev.ID).
		WithHint("`ferrule tools %s` shows what it is now", dev.ID)
}

// plain makes of the reasons for sending a call again one that people understand.
func (b *Cluster) plain(dev *ferrule.Device, err error) error {
	switch {
	case errors.Is(err, errNobody), errors.Is(err, errMissed):
		gone := *dev
		gone.State, gone.Reason = ferrule.StateOffline, "its node "+dev.Node+" does not answer"
		gone.Since = later(b.view.heard(dev.Node), dev.Since)
		return gone.OfflineError()
	case errors.Is(err, errMoved):
		gone := *dev
		gone.State, gone.Reason, gone.Since = ferrule.StateOffline, "its node "+dev.Node+" has lost it", time.Now()
		return gone.OfflineError()
	}
	return err
}

// here serves a call whose device has come to this node meanwhile.
func (b *Cluster) here(ctx context.Context, call *ferrule.Call, dev *ferrule.Device) (*ferrule.Result, error) {
	h, ok := b.view.holds(dev.ID, dev.Epoch)
	if !ok {
		return nil, b.plain(dev, errMoved)
	}
	target, err := targetOf(h, &request{Call: *call, Kind: dev.Kind, Effect: call.Target.Tool.Effect})
	if err != nil {
		return nil, err
	}
	call.Target = target
	return b.parts.Serve(ctx, call)
}

// reread asks the registry where a device is now.
func (b *Cluster) reread(ctx context.Context, id string) *ferrule.Device {
	h := b.home.Load()
	if h == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	e, err := h.registry.get(ctx, id)
	if err != nil {
		return nil
	}
	b.view.update(id, e)
	return e.device
}

// send sends a call to the node of its device, and waits for its end.
func (b *Cluster) send(ctx context.Context, call *ferrule.Call, dev *ferrule.Device) (*ferrule.Result, error) {
	engine, boot := b.engine.Load(), b.view.boot(dev.Node)
	if engine == nil || boot == "" {
		return nil, errNobody
	}
	req := request{
		Call: *call, Kind: dev.Kind, Epoch: dev.Epoch, Effect: call.Target.Tool.Effect,
		Asks: call.Ask != nil, Reports: call.Progress != nil,
	}
	if until, ok := ctx.Deadline(); ok {
		req.Call.Timeout = ferrule.Duration(time.Until(until)) // what was used is gone
	}
	data, err := json.Marshal(&req)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "the call cannot be written: %w", err)
	}
	if most := int(engine.conn.MaxPayload()); most > 0 && len(data) > most {
		return nil, ferrule.Errorf(ferrule.Invalid, "the arguments of %s take %d bytes; at most %d can be sent to another node", call.Tool, len(data), most)
	}
	token, out := b.outbox.open()
	defer b.outbox.close(token)
	trip := &trip{bus: b, engine: engine, call: call, node: dev.Node, boot: boot, reply: b.replies + token, out: out}
	if err := trip.depart(ctx, data); err != nil {
		return nil, err
	}
	return trip.await(ctx)
}

// trip is one sending of one call.
type trip struct {
	bus    *Cluster
	engine *engine
	call   *ferrule.Call
	node   string
	boot   string // which run of it
	reply  string
	out    *outgoing
	// told is set before anything but the call itself is sent to the holder: from
	// then on, that a message found nobody says nothing about the call.
	told atomic.Bool
	sent time.Time // or a moment before
}

// depart sends the call off. If it returns an error, nothing was sent.
func (t *trip) depart(ctx context.Context, data []byte) error {
	for end := time.Now().Add(linkTime); ; {
		t.sent = time.Now()
		err := t.engine.conn.PublishRequest(t.bus.names.at(t.node, t.boot, verbCall), t.reply, data)
		if !unsent(err) {
			return nil // some other error may come after it was sent: the holder is asked
		}
		limit, cancel := context.WithDeadline(ctx, end)
		err = t.engine.linked(limit)
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return ferrule.Errorf(ferrule.Cancelled, "cancelled before it was sent")
			}
			return errNobody
		}
	}
}

// since is how long ago something was, by the clock that says more: one stands still
// while a machine sleeps, the other can be set back.
func since(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}

// unsent tells whether an error of publishing means that nothing was sent.
func unsent(err error) bool {
	return errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining)
}

// await waits for the end of the call.
func (t *trip) await(ctx context.Context) (*ferrule.Result, error) {
	ask := time.NewTimer(askAfter)
	defer ask.Stop()
	done := ctx.Done()
	var over <-chan time.Time
	arrived, unheard := false, 0
	inquire := func() {
		ask.Reset(askAfter)
		t.tell(verbAsk, binary.AppendVarint(nil, int64(since(t.sent))))
	}
	for {
		select {
		case data := <-t.out.end:
			return t.end(ctx, data)
		case data := <-t.out.frames:
			arrived, unheard = true, 0
			t.take(ctx, data)
		case <-t.out.nobody:
			if !arrived && !t.told.Load() {
				return nil, errNobody
			}
			if unheard++; unheard == unheardOf {
				return nil, t.unanswered("node " + t.node + " has gone away meanwhile")
			}
			ask.Reset(askAgain)
		case <-t.out.poke:
			inquire()
		case <-ask.C:
			inquire()
		case <-done:
			done = nil
			t.tell(verbCancel, nil)
			over = time.After(lastWords)
		case <-over:
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, t.unanswered("no answer came in time")
			}
			return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while %s was at it", t.call.Device).AfterSend()
		}
	}
}

func (t *trip) unanswered(why string) error {
	return ferrule.Errorf(ferrule.Unanswered, "%s of %s was sent to %s, and %s", t.call.Tool, t.call.Device, t.node, why)
}

// tell says something to the holder about the call. That it gets lost is reckoned
// with.
func (t *trip) tell(verb string, data []byte) {
	t.told.Store(true)
	t.engine.conn.PublishRequest(t.bus.names.at(t.node, t.boot, verb), t.reply, data)
}

// end is what the last word of the holder means.
func (t *trip) end(ctx context.Context, data []byte) (*ferrule.Result, error) {
	switch data[0] {
	case frameMoved:
		return nil, errMoved
	case frameUnknown:
		if age, n := binary.Varint(data[1:]); n <= 0 || since(t.sent)-time.Duration(age) > slack {
			return nil, t.unanswered("it took node " + t.node + " too long to tell whether it arrived")
		}
		return nil, errMissed
	case frameForgot:
		return nil, t.unanswered("node " + t.node + " was started anew meanwhile")
	}
	result, err := ending(data[0], data[1:])
	if err == nil || ferrule.AsError(err).Code != ferrule.Cancelled || ctx.Err() != nil {
		return result, err
	}
	// The node ended, and says so of its callers.
	if ferrule.AsError(err).MayHaveRun() {
		return nil, t.unanswered("node " + t.node + " was stopped meanwhile")
	}
	return nil, errNobody
}

// take takes in what comes before the end.
func (t *trip) take(ctx context.Context, data []byte) {
	switch data[0] {
	case frameProgress:
		var p ferrule.Progress
		if json.Unmarshal(data[1:], &p) == nil {
			p.Message = ferrule.Clean(p.Message, ferrule.MaxText)
			if p.Log != nil {
				p.Log.Level, p.Log.Logger = ferrule.Clean(p.Log.Level, ferrule.MaxWord), ferrule.Clean(p.Log.Logger, ferrule.MaxWord)
			}
			t.call.Report(p)
		}
	case frameQuestion:
		var q question
		if json.Unmarshal(data[1:], &q) == nil && t.call.Ask != nil {
			go t.answer(ctx, q)
		}
	}
}

// answer asks the caller, and brings the answer to the holder.
func (t *trip) answer(ctx context.Context, q question) {
	a := answer{Number: q.Number}
	said, err := t.call.Ask(ctx, q.Question)
	if a.Answer = said; err != nil {
		a.Error = err.Error()
	}
	t.tell(verbAnswer, frame(frameQuestion, a)[1:])
}
