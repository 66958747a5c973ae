package calls

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// How long a caller's node waits.
const (
	askAfter      = 500 * time.Millisecond // without a message, the holder is asked for the call's state
	askAgain      = 250 * time.Millisecond // after a message found no subscriber
	minConfirm    = 75 * time.Millisecond  // for a holder to say that it is there
	maxUnreceived = 8                      // messages without a subscriber until the holder counts as gone
	lastWords     = 500 * time.Millisecond // for the holder to report the outcome of a cancelled call
)

// patience is how long a caller's node waits for a holder. Tests wait longer.
type patience struct {
	confirm   time.Duration // at least, for a holder to say that it is there
	lastWords time.Duration
}

// send sends a call to the node of its device, and waits for the outcome.
func (c *Calls) send(ctx context.Context, call *ferrule.Call, dev *ferrule.Device) (*ferrule.Result, error) {
	boot, _ := c.options.Devices.Peer(dev.Node)
	e := c.engine.Load()
	if e == nil || boot == "" {
		return nil, errNobody
	}
	req := request{
		Call: *call, Kind: dev.Kind, Epoch: dev.Epoch, Effect: call.Target.Tool.Effect,
		Values: true, Asks: call.Ask != nil, Reports: call.Progress != nil, Ask: call.Target.Remote && call.Verdict.Ruling == ferrule.Ask,
	}
	if until, ok := ctx.Deadline(); ok { // what is left of it
		req.Deadline = ferrule.Duration(time.Until(until))
		if req.Call.Timeout == 0 || req.Call.Timeout > req.Deadline {
			req.Call.Timeout = req.Deadline
		}
	}
	data, err := json.Marshal(&req)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "encoding the call failed: %w", err)
	}
	if limit := int(e.Conn.MaxPayload()) - tagSize; limit > 0 && len(data) > limit {
		return nil, ferrule.Errorf(ferrule.Invalid, "the arguments of %s are too long for another node: the call has %d bytes, limit is %d", call.Tool, len(data), limit)
	}
	token, p := c.outbox.open(run{dev.Node, boot})
	defer c.outbox.close(token)
	s := &sending{names: c.names, engine: e, keys: c.keys, call: call, node: dev.Node, boot: boot, reply: c.replies + token, pending: p, patience: c.patience}
	if err := s.start(ctx, data); err != nil {
		return nil, err
	}
	return s.wait(ctx)
}

// sending is one attempt to send a call.
type sending struct {
	names   engine.Names
	engine  *engine.Engine
	keys    *keys
	call    *ferrule.Call
	node    string
	boot    string // the run of the node
	reply   string
	pending *pending
	patience
	// followed is set before anything but the call is sent to the holder. From then on,
	// a message without a subscriber says nothing about the call.
	followed atomic.Bool
	sent     time.Time // at the latest
}

// start sends the call. If it returns an error, nothing was sent.
func (s *sending) start(ctx context.Context, data []byte) error {
	data, err := s.seal(verbCall, data)
	if err != nil {
		return ferrule.Errorf(ferrule.Internal, "the call was not sent: %w", err)
	}
	for end := time.Now().Add(engine.LinkTime); ; {
		if err := ferrule.MaySend(ctx); err != nil {
			return err
		}
		s.sent = time.Now()
		// model: call_send
		err := s.engine.Conn.PublishRequest(s.names.Request(s.node, s.boot, verbCall), s.reply, data)
		if !unsent(err) {
			return nil // other errors may occur after the call was sent: the holder is asked
		}
		limit, cancel := context.WithDeadline(ctx, end)
		err = s.engine.WaitLinked(limit)
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return ferrule.Errorf(ferrule.Cancelled, "cancelled before it was sent")
			}
			return errNobody
		}
	}
}

// age returns how long ago a time was, by the clock that shows more: the monotonic clock
// stops while a machine sleeps, and the wall clock can be set back.
func age(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}

// unsent reports whether an error of publishing means that nothing was sent.
func unsent(err error) bool {
	return errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining)
}

// wait waits for the outcome of the call.
func (s *sending) wait(ctx context.Context) (*ferrule.Result, error) {
	timer := time.NewTimer(askAfter)
	defer timer.Stop()
	done := ctx.Done()
	var over <-chan time.Time
	arrived, unreceived := false, 0
	doubted := false // NATS says that nobody received the call; any client can say that
	ask := func() {
		timer.Reset(askAfter)
		s.tell(verbAsk, binary.AppendVarint(nil, int64(age(s.sent))))
	}
	for {
		select {
		case data := <-s.pending.final:
			return s.finish(ctx, data)
		case data := <-s.pending.frames:
			arrived, unreceived = true, 0
			s.handle(ctx, data)
		case <-s.pending.nobody:
			if !arrived && !s.followed.Load() {
				doubted = true
				ask()
				timer.Reset(s.confirmTime())
				continue
			}
			if doubted && !arrived {
				continue
			}
			if unreceived++; unreceived == maxUnreceived {
				return nil, s.unanswered("which is gone")
			}
			timer.Reset(askAgain)
		case <-s.pending.poke:
			ask()
		case <-timer.C:
			if doubted && !arrived { // a holder that is there would have answered the ask
				return nil, errNobody
			}
			ask()
		case <-done:
			done = nil
			s.tell(verbCancel, nil)
			over = time.After(s.lastWords)
		case <-over:
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, s.unanswered("no answer in time")
			}
			return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while it was running on %s", s.call.Device).AfterSend()
		}
	}
}

// confirmTime returns how long a holder that is there may take to answer an ask.
func (s *sending) confirmTime() time.Duration {
	rtt, err := s.engine.Conn.RTT() // to the nearest server
	if err != nil {
		return askAfter
	}
	return max(s.confirm, min(8*rtt, askAfter))
}

func (s *sending) unanswered(why string) error {
	return ferrule.Errorf(ferrule.Unanswered, "%s on %s: sent to node %s, %s", s.call.Tool, s.call.Device, s.node, why)
}

// seal makes a request to the holder.
func (s *sending) seal(verb string, data []byte) ([]byte, error) {
	return s.keys.seal(run{s.node, s.boot}, verb+" "+s.reply, data)
}

// tell sends the holder a message about the call. It may get lost.
func (s *sending) tell(verb string, data []byte) {
	s.followed.Store(true)
	data, err := s.seal(verb, data)
	if err != nil {
		return
	}
	s.engine.Conn.PublishRequest(s.names.Request(s.node, s.boot, verb), s.reply, data)
}

// finish returns the outcome that a final frame means.
func (s *sending) finish(ctx context.Context, data []byte) (*ferrule.Result, error) {
	switch data[0] {
	case frameMoved:
		return nil, errMoved
	case frameUnknown:
		if asked, n := binary.Varint(data[1:]); n <= 0 || age(s.sent)-time.Duration(asked) > slack {
			return nil, s.unanswered("which took too long to say whether it arrived")
		}
		return nil, errMissed
	case frameForgot:
		return nil, s.unanswered("which no longer knows what became of it")
	}
	result, err := parseFinal(data[0], data[1:])
	if err == nil || ferrule.AsError(err).Code != ferrule.Cancelled || ctx.Err() != nil {
		return result, err
	}
	// This caller did not cancel: the node stopped, and cancelled its calls.
	if ferrule.AsError(err).MayHaveRun() {
		return nil, s.unanswered("which was stopped")
	}
	return nil, errNobody
}

// handle handles a frame that is not final.
func (s *sending) handle(ctx context.Context, data []byte) {
	switch data[0] {
	case frameProgress:
		var p ferrule.Progress
		if json.Unmarshal(data[1:], &p) == nil {
			p.Message = ferrule.Clean(p.Message, ferrule.MaxText)
			if p.Log != nil {
				p.Log.Level, p.Log.Logger = ferrule.Clean(p.Log.Level, ferrule.MaxWord), ferrule.Clean(p.Log.Logger, ferrule.MaxWord)
			}
			s.call.Report(p)
		}
	case frameQuestion:
		var q question
		if json.Unmarshal(data[1:], &q) == nil && s.call.Ask != nil {
			go s.answer(ctx, q)
		}
	}
}

// answer asks the caller, and sends its answer to the holder.
func (s *sending) answer(ctx context.Context, q question) {
	a := answer{Number: q.Number}
	given, err := s.call.Ask(ctx, q.Question)
	if a.Answer = given; err != nil {
		a.Error = err.Error()
	}
	s.tell(verbAnswer, frame(frameQuestion, a)[1:])
}
