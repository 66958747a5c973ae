// Package calls carries calls to devices of other nodes over NATS.
//
//	out  Call ─▶ outbox ── node.<holder>.<boot>.call ─▶
//	              ◀─────── reply.<self>.<token> ─────── result, progress, questions
//	in   ── node.<self>.<boot>.call ─▶ Listener ─▶ inbox ─▶ Serve
//
// A call reaches at most one node, at most once. It names the epoch under which the
// device is held; a node that no longer holds it under that epoch rejects the call. If no
// answer arrives, the holder is asked what became of the call. It is sent again only if the
// holder confirms that it has not arrived and will not be served if it does.
//
// Nodes of a tenant share a secret, from which each pair of runs derives its keys. Every
// message carries a tag that only these two nodes can make: other clients of NATS can
// neither call a device nor answer a call. The holder serves the call through
// its own pipeline; the sending node vouches for the caller and for nothing else.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Devices says where devices are.
type Devices interface {
	// Peer returns the current run of another node, empty if it is not alive, and when
	// the node was last known to be.
	Peer(node string) (boot string, lastSeen time.Time)
	// Held returns a device that this node holds under an epoch, with its effective
	// manifest.
	Held(id string, epoch uint64) (ferrule.Target, bool)
	// Lookup reads where a device is now; nil if that is unknown.
	Lookup(ctx context.Context, id string) *ferrule.Device
}

// Options are the parts that calls need.
type Options struct {
	Names   engine.Names
	Boot    string // of this run
	Devices Devices
	// Secret is what the nodes of the tenant share, of at least MinSecret bytes.
	Secret []byte
	// Serve is the pipeline of this node. Call.Via is set.
	Serve ferrule.Handler
	// Refused is called with calls that no node of this tenant vouches for. Nothing in
	// them can be believed. It must not block.
	Refused func(call *ferrule.Call)
	Meters  ferrule.Meters
	Log     *slog.Logger
}

// Calls sends calls to other nodes and serves theirs.
type Calls struct {
	options Options
	names   engine.Names
	replies string // prefix of the subjects on which answers arrive
	sending ferrule.Meter
	outbox  *outbox
	inbox   *inbox
	keys    *keys
	refused refusals
	patience
	engine atomic.Pointer[engine.Engine] // nil while not connected
}

// New returns a Calls that is not connected.
func New(o Options) *Calls {
	o.Serve = ferrule.Measured(o.Meters.For(ferrule.PartServe), o.Serve)
	return &Calls{
		options: o, names: o.Names, replies: o.Names.Replies(), sending: o.Meters.For(ferrule.PartNode),
		outbox: newOutbox(o.Boot), inbox: newInbox(), keys: newKeys(o.Secret, run{o.Names.Node, o.Boot}),
		patience: patience{minConfirm, lastWords},
	}
}

// Connect subscribes to answers and uses an engine until Disconnect.
func (c *Calls) Connect(e *engine.Engine) error {
	if _, err := e.Conn.Subscribe(c.replies+"*", func(msg *nats.Msg) { c.outbox.receive(c.keys, msg) }); err != nil {
		return err
	}
	c.engine.Store(e)
	return nil
}

// Disconnect stops using the engine. The subscription ends with its connection.
func (c *Calls) Disconnect() { c.engine.Store(nil) }

// Reconnected asks for the state of every call: answers may have been lost with the
// connection.
func (c *Calls) Reconnected() { c.outbox.pokeAll() }

// Sending returns how many calls to other nodes are in progress.
func (c *Calls) Sending() int { return c.outbox.count() }

// Serving returns how many calls of other nodes are being served.
func (c *Calls) Serving() int { return c.inbox.count() }

// attempts is how often a call is sent if it does not arrive.
const attempts = 3

// Why a call certainly did not reach its device. It may be sent again.
var (
	errNobody = errors.New("its node does not answer")
	errMoved  = errors.New("its node no longer holds it")
	errMissed = errors.New("the call did not arrive")
)

// Call is the handler for every device of other nodes.
func (c *Calls) Call(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return c.measured(ctx, call, c.reach)
}

// Forward sends a call of the gateway's own tools to the node that it concerns.
func (c *Calls) Forward(ctx context.Context, node string, call *ferrule.Call) (*ferrule.Result, error) {
	result, err := c.measured(ctx, call, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return c.send(ctx, call, &ferrule.Device{ID: ferrule.GatewayID, Node: node})
	})
	if errors.Is(err, errNobody) || errors.Is(err, errMissed) {
		return nil, ferrule.Errorf(ferrule.Offline, "node %s does not answer, and only that node can do this", node).
			WithHint("try again when it is online; `ferrule devices` shows its devices")
	}
	return result, err
}

// measured calls a handler in a span. It restores the call's Parent, which is changed
// for the other node only.
func (c *Calls) measured(ctx context.Context, call *ferrule.Call, handle ferrule.Handler) (*ferrule.Result, error) {
	parent := call.Parent
	ctx, span := c.sending.Begin(ctx, call)
	result, err := handle(ctx, call)
	c.sending.End(span, call, err)
	call.Parent = parent
	return result, err
}

// reach sends a call to the holder of its device. It sends again only if the call
// certainly did not arrive and never will, so at most one node serves it, once.
func (c *Calls) reach(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	dev := call.Target.Device
	lookedUp := false
	for left := attempts - 1; ; left-- {
		result, err := c.send(ctx, call, dev)
		if err == nil || left == 0 || !errors.Is(err, errNobody) && !errors.Is(err, errMoved) && !errors.Is(err, errMissed) {
			return result, c.userError(dev, err)
		}
		if ctx.Err() != nil {
			return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled before it was sent")
		}
		if errors.Is(err, errMissed) {
			continue
		}
		fresh := c.options.Devices.Lookup(ctx, dev.ID)
		if lookedUp || fresh == nil || fresh.Node == dev.Node && fresh.Epoch == dev.Epoch {
			return nil, c.userError(dev, err)
		}
		lookedUp = true
		switch {
		case fresh.Kind != dev.Kind || fresh.Trust != dev.Trust || !fresh.SameHardware(dev):
			return nil, changed(dev)
		case fresh.State != ferrule.StateOnline:
			return nil, fresh.OfflineError()
		case fresh.Node == c.names.Node:
			return c.serveHere(ctx, call, fresh)
		}
		dev = fresh
	}
}

func changed(dev *ferrule.Device) error {
	return ferrule.Errorf(ferrule.Invalid, "%s changed while it was being called; nothing was sent to it", dev.ID).
		WithHint("run `ferrule tools %s` to see its tools now", dev.ID)
}

// userError maps the reasons for sending again to an error for the user.
func (c *Calls) userError(dev *ferrule.Device, err error) error {
	switch {
	case errors.Is(err, errNobody), errors.Is(err, errMissed):
		gone := *dev
		gone.State, gone.Reason = ferrule.StateOffline, "its node "+dev.Node+" does not answer"
		_, lastSeen := c.options.Devices.Peer(dev.Node)
		gone.Since = later(lastSeen, dev.Since)
		return gone.OfflineError()
	case errors.Is(err, errMoved):
		gone := *dev
		gone.State, gone.Reason, gone.Since = ferrule.StateOffline, "its node "+dev.Node+" no longer has it", time.Now()
		return gone.OfflineError()
	}
	return err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// serveHere serves a call whose device has moved to this node meanwhile.
func (c *Calls) serveHere(ctx context.Context, call *ferrule.Call, dev *ferrule.Device) (*ferrule.Result, error) {
	held, ok := c.options.Devices.Held(dev.ID, dev.Epoch)
	if !ok {
		return nil, c.userError(dev, errMoved)
	}
	target, err := targetOf(held, &request{Call: *call, Kind: dev.Kind, Effect: call.Target.Tool.Effect})
	if err != nil {
		return nil, err
	}
	moved := *call // the outer pipeline still records the call as its own
	moved.Target, moved.Via = target, c.names.Node
	return c.options.Serve(ctx, &moved)
}
