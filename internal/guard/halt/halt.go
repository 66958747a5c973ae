// Package halt stops changes: on this node at once, and on the other nodes of the tenant
// as soon as they hear of it. Anybody may stop; only a person may resume.
//
//	Stop ─┬─ deny: from now on Enter refuses, and contexts of running changes end
//	      ├─ drain: wait for what was already being sent
//	      ├─ file: the order survives a restart, also if the disk is full
//	      ├─ other nodes: a message, and a shared record
//	      └─ stop tools of this node's devices
//
// # Invariant
//
// When Stop has returned, no change that entered before is sent any more. Those who
// send ask ferrule.MaySend first, under the lock that Stop takes to stop the call: either
// they learn that the call is stopped, or Stop learns that the call is being sent. Stop waits
// until these have left; the context of each has ended, and transports look at it again
// before they write. A call that is still busy after DrainTime was being sent before the
// stop, and is reported as one that may have run.
//
// # Orders
//
// A stop is an order of one node, for everything or for one device, with a number that
// only grows. Resuming marks the orders that the resuming node knows, by their numbers. So
// orders of all nodes merge in any sequence with the same result, an old record changes
// nothing, and a stop that the resuming node had not heard of stays in force.
package halt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Order is an order to stop everything or one device, and whether it was resumed.
type Order struct {
	// Node is the node that was told to stop.
	Node string `json:"node"`
	// Device is empty for everything.
	Device string `json:"device,omitempty"`
	// Seq grows with each stop of this node and device. Those up to Resumed are over.
	Seq     uint64    `json:"seq"`
	Resumed uint64    `json:"resumed,omitempty"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	Time    time.Time `json:"time"`
}

// active reports whether the order is in force.
func (o Order) active() bool { return o.Seq > o.Resumed }

// String says who stopped, when and why.
func (o Order) String() string {
	text := "stopped by " + o.By + " at " + ferrule.FormatTime(o.Time)
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

// Limits of orders.
const (
	maxReason = 160 // bytes
	maxSeq    = 1 << 62
	// MaxOrders is how many orders are remembered, those of everything included.
	MaxOrders = 256
)

// check returns why an order of another node or of the file is invalid.
func (o Order) check() error {
	if ferrule.CheckID(o.Node) != nil || o.Device != "" && ferrule.CheckID(o.Device) != nil || o.Seq > maxSeq || o.Resumed > maxSeq {
		return errors.New("invalid order to stop")
	}
	return nil
}

// clean bounds the texts of an order.
func (o Order) clean() Order {
	o.By, o.Reason = ferrule.Clean(o.By, ferrule.MaxWord), ferrule.Clean(o.Reason, maxReason)
	o.Time = o.Time.UTC().Truncate(time.Millisecond) // orders are compared
	if o.Time.Year() < 1 || o.Time.Year() > 9999 {
		o.Time = time.Time{} // others cannot be written as JSON
	}
	return o
}

// merge returns what two nodes know of an order together. All nodes get the same.
func merge(a, b Order) Order {
	if cmp.Or(cmp.Compare(b.Seq, a.Seq), strings.Compare(b.By, a.By), strings.Compare(b.Reason, a.Reason), b.Time.Compare(a.Time)) > 0 {
		a, b = b, a
	}
	a.Resumed = max(a.Resumed, b.Resumed)
	return a
}

// place is what an order is about.
type place struct{ node, device string }

func (o Order) place() place { return place{o.Node, o.Device} }

// Key returns the name of an order's shared record.
func (o Order) key() string {
	if o.Device == "" {
		return keyPrefix + o.Node
	}
	return keyPrefix + o.Node + "." + o.Device
}

const keyPrefix = "stop."

// Records are what all nodes of the tenant know. See internal/cluster/shared.
type Records interface {
	Put(key string, value []byte) error
	Watch(fn func(key string, value []byte))
	OnSync(fn func())
	Announce(ctx context.Context, key string, value []byte, heard func(node string, data []byte)) error
	Serve(fn func(key string, value []byte, reply func(data []byte)))
}

// Journal records stops.
type Journal interface {
	Append(e ferrule.Entry, durable bool) error
}

// Options are the parts that a Stop needs.
type Options struct {
	Dir, Node string
	Records   Records
	// Nodes returns the other nodes that are alive.
	Nodes func() []string
	// Targets returns the devices of this node, with their stop tools.
	Targets func() []ferrule.Target
	// Handle calls a device of this node.
	Handle  ferrule.Handler
	Journal Journal
	// Event receives what people who watch should see. It must not block.
	Event func(e ferrule.Event)
	// Changed is called when what is stopped has changed, on any node; it may be nil. It must
	// not block or call back.
	Changed func()
	Log     *slog.Logger
}

// Stop can stop changes. It implements pipeline.Stop.
type Stop struct {
	options Options

	mu      sync.Mutex
	changes uint64 // of orders, in this run
	orders  map[place]Order
	running map[*change]struct{}
	// published are the orders as the shared records have them.
	published map[place]Order
	halts     map[place]*halt // the last one of each order, while it may be asked for

	saving sync.Mutex // held while the file is written
	saved  uint64     // changes that are in the file
	file   *file
}

// Open returns a Stop with the orders of its file. If the file cannot be read, everything
// is stopped.
func Open(o Options) *Stop {
	s := &Stop{options: o, orders: make(map[place]Order), running: make(map[*change]struct{}), halts: make(map[place]*halt), published: make(map[place]Order)}
	var orders []Order
	var err error
	if s.file, orders, err = openFile(o.Dir); err != nil {
		o.Log.Error("the record of stops cannot be read; everything is stopped", "err", err)
		orders = append(orders, Order{Node: o.Node, Seq: now(), By: "gateway:stop", Reason: "the record of stops cannot be read", Time: time.Now()}.clean())
	}
	for _, order := range orders {
		s.orders[order.place()] = order
	}
	if s.file == nil {
		o.Log.Warn("there is no space for a record of stops: a stop would end with this process")
	}
	return s
}

// Close closes the file.
func (s *Stop) Close() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.f.Close()
}

// Connect makes a Stop hear the other nodes. It is called once, before the cluster runs.
func (s *Stop) Connect() {
	r := s.options.Records
	r.Watch(func(key string, value []byte) {
		if strings.HasPrefix(key, keyPrefix) && value != nil {
			s.hear(key, value)
		}
	})
	r.OnSync(s.publishMissing)
	r.Serve(s.answer)
}

// now returns a number for an order. It grows, unless the clock is set back.
func now() uint64 { return uint64(time.Now().UnixMicro()) }

// find returns the order that stops a device, if there is one. It is called with mu held.
func (s *Stop) find(dev *ferrule.Device) (found Order, ok bool) {
	for _, o := range s.orders {
		if !o.active() || o.Device != "" && o.Device != dev.ID && !slices.Contains(dev.Aliases, o.Device) {
			continue
		}
		// Everything before one device, then the first.
		if !ok || cmp.Or(strings.Compare(o.Device, found.Device), o.Time.Compare(found.Time), strings.Compare(o.Node, found.Node)) < 0 {
			found, ok = o, true
		}
	}
	return found, ok
}

// covers reports whether an order is about a device.
func (o Order) covers(dev *ferrule.Device) bool {
	return o.Device == "" || o.Device == dev.ID || slices.Contains(dev.Aliases, o.Device)
}

// denied returns the error of a call that an order stops.
func (o Order) denied(device string) *ferrule.Error {
	what, resume := "everything is ", "ferrule resume"
	if o.Device != "" {
		what, resume = device+" is ", "ferrule resume "+o.Device
	}
	return ferrule.Errorf(ferrule.Denied, "%s%s; nothing was sent", what, o).
		WithHint("reads still work; to resume, a person runs `%s`", resume)
}

// change is a call that entered.
type change struct {
	device *ferrule.Device
	cancel context.CancelCauseFunc
	left   chan struct{}

	mu      sync.Mutex
	stopped *ferrule.Error // nil unless it was stopped
	sent    bool           // it was given to the device or to another node
}

// maySend implements ferrule.MaySend.
func (c *change) maySend() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return c.stopped
	}
	c.sent = true
	return nil
}

// stop makes sure that the call is not sent from now on.
func (c *change) stop(why *ferrule.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped == nil {
		// model: stop_cancel
		c.stopped = why
		c.cancel(why)
	}
}

// wasSent reports whether the call may have been sent.
func (c *change) wasSent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent
}

// Enter implements pipeline.Stop. The gateway's own tools move nothing, and its own calls
// are polls, stop tools and the ends of leases: they are never stopped.
func (s *Stop) Enter(ctx context.Context, call *ferrule.Call) (context.Context, func(), error) {
	if call.Device == ferrule.GatewayID || call.Principal.Role == ferrule.Gateway {
		return ctx, func() {}, nil
	}
	dev := call.Target.Device
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, stopped := s.find(dev); stopped {
		// model: stop_refuse
		return nil, nil, o.denied(dev.ID)
	}
	c := &change{device: dev, left: make(chan struct{})}
	ctx, c.cancel = context.WithCancelCause(ferrule.WithSend(ctx, c.maySend))
	// model: stop_admit
	s.running[c] = struct{}{}
	return ctx, func() {
		s.mu.Lock()
		delete(s.running, c)
		s.mu.Unlock()
		close(c.left)
		c.cancel(nil)
	}, nil
}

// DrainTime limits how long a stop waits for calls that are being sent.
const DrainTime = 800 * time.Millisecond

// halt is what this node does about one order.
type halt struct {
	seq     uint64
	drained chan struct{} // closed when nothing is sent any more
	mayRun  int           // changes that may have run; valid after drained
	ended   int           // changes that were ended; valid after drained
	tools   chan struct{} // closed when the stop tools have answered
	saved   chan error    // receives one value when the order was written to the file
	results []ToolResult  // valid after tools
}

// apply merges an order into what this node knows. If that stops something, it denies
// changes, ends those under way, and calls stop tools. It does not wait.
func (s *Stop) apply(o Order) (merged Order, h *halt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enforce(o)
}

// enforce is apply with mu held.
func (s *Stop) enforce(o Order) (merged Order, h *halt) {
	known, ok := s.orders[o.place()]
	merged = o
	if ok {
		merged = merge(known, o)
	}
	if merged == known {
		return merged, s.halts[o.place()]
	}
	if !ok {
		s.makeRoom()
	}
	s.orders[o.place()] = merged
	s.changes++
	if s.options.Changed != nil {
		defer s.options.Changed()
	}
	if !merged.active() || merged.Seq == known.Seq {
		return merged, nil
	}
	h = &halt{seq: merged.Seq, drained: make(chan struct{}), tools: make(chan struct{}), saved: make(chan error, 1)}
	s.halts[o.place()] = h
	var stopped []*change
	for c := range s.running {
		if merged.covers(c.device) {
			c.stop(merged.denied(c.device.ID))
			stopped = append(stopped, c)
		}
	}
	go h.drain(stopped)
	go func() { h.saved <- s.save() }()
	go func() {
		defer close(h.tools)
		h.results = s.callTools(merged)
	}()
	return merged, h
}

// makeRoom forgets the oldest order that is over, if there are too many. It is called with
// mu held.
func (s *Stop) makeRoom() {
	if len(s.orders) < MaxOrders {
		return
	}
	var oldest *Order
	for _, o := range s.orders {
		if !o.active() && (oldest == nil || o.Seq < oldest.Seq) {
			oldest = &o
		}
	}
	if oldest != nil {
		delete(s.orders, oldest.place())
		delete(s.halts, oldest.place())
		delete(s.published, oldest.place())
	}
}

// drain waits until the calls have left, or time is up.
func (h *halt) drain(stopped []*change) {
	defer close(h.drained)
	limit := time.NewTimer(DrainTime)
	defer limit.Stop()
	for _, c := range stopped {
		select {
		case <-c.left:
		case <-limit.C:
			limit.Reset(0) // the others are only counted
		}
		if c.wasSent() {
			h.mayRun++
		} else {
			h.ended++
		}
	}
}

// Stopped reports whether anything is stopped, and what.
func (s *Stop) Stopped() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var state State
	for _, o := range s.orders {
		if o.active() {
			state.Orders = append(state.Orders, o)
		}
	}
	slices.SortFunc(state.Orders, func(a, b Order) int {
		return cmp.Or(strings.Compare(a.Device, b.Device), a.Time.Compare(b.Time), strings.Compare(a.Node, b.Node))
	})
	return state
}

// State is what is stopped.
type State struct {
	// Orders are those in force, everything first, then by device.
	Orders []Order `json:"orders,omitempty"`
}

// Everything reports whether everything is stopped.
func (s State) Everything() bool { return len(s.Orders) > 0 && s.Orders[0].Device == "" }

// Devices returns the devices that are stopped one by one.
func (s State) Devices() (ids []string) {
	for _, o := range s.Orders {
		if o.Device != "" && !slices.Contains(ids, o.Device) {
			ids = append(ids, o.Device)
		}
	}
	return ids
}

// For returns why a device is stopped, or "" if it is not.
func (s State) For(dev *ferrule.Device) string {
	for _, o := range s.Orders {
		if o.covers(dev) {
			return o.String()
		}
	}
	return ""
}

// String says in one sentence what is stopped; it is empty if nothing is.
func (s State) String() string {
	switch n := len(s.Devices()); {
	case s.Everything():
		return "Changes are denied: everything is " + s.Orders[0].String() + ". To resume, run `ferrule resume`."
	case n == 1:
		return fmt.Sprintf("%s is %s. To resume, run `ferrule resume %s`.", s.Orders[0].Device, s.Orders[0], s.Orders[0].Device)
	case n > 1:
		return fmt.Sprintf("%d devices are stopped: %s. To resume, run `ferrule resume`.", n, strings.Join(s.Devices(), ", "))
	}
	return ""
}

// encode returns an order as a shared record.
func (o Order) encode() []byte {
	data, err := json.Marshal(o)
	if err != nil { // it has only texts and numbers
		return nil
	}
	return data
}

// decodeOrder reads an order of another node.
func decodeOrder(key string, data []byte) (o Order, err error) {
	if err := json.Unmarshal(data, &o); err != nil {
		return Order{}, err
	}
	if err := o.check(); err != nil {
		return Order{}, err
	}
	if o.key() != key {
		return Order{}, errors.New("an order to stop has the key of another")
	}
	return o.clean(), nil
}
