package homeassistant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a link.
const (
	// maxStates is how many states wait for a reader who is slow. Above it, only the newest of
	// each entity is kept.
	maxStates = 256
	// maxCalls limits the calls that Home Assistant has not answered.
	maxCalls   = 16
	maxMessage = 512 // of an error
)

// link is the Link to one device. It has no goroutine while nothing is called: the connection
// passes states to it, and its reader takes them.
type link struct {
	transport.Tracer
	hub     *Hub
	conn    *api.Conn
	address string
	calls   sync.WaitGroup
	// described reports that the first offer was received. The hub's lock guards it.
	described bool

	mu       sync.Mutex
	items    []item
	entities int                          // of the device
	pending  map[*call]context.CancelFunc // calls without an answer
	ready    chan struct{}                // has an element if there is something
	err      error                        // why nothing more can be received
}

// item is something to receive: a state of an entity, the offer, or a result.
type item struct {
	channel string
	entity  string
	data    json.RawMessage // nil for an offer: the newest is taken, and for a removed state
	old     bool            // of a state: nobody has changed it just now
}

// opener returns the function that opens links to a device as it was at a revision. The first
// offer on the link is then what was judged for the sighting.
func (h *Hub) opener(address string, revision uint64) func(context.Context) (transport.Link, error) {
	return func(context.Context) (transport.Link, error) { return h.open(address, revision) }
}

// open returns a link to a revision of a device.
func (h *Hub) open(address string, revision uint64) (transport.Link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[address]
	switch {
	case h.conn == nil || !h.complete:
		return nil, fmt.Errorf("Home Assistant %s is unreachable", h.cfg.Home)
	case d == nil:
		return nil, errors.New("the device was removed")
	case d.revision != revision:
		return nil, errChanged // the new sighting is about to be reported
	}
	l := &link{hub: h, conn: h.conn, address: address, ready: make(chan struct{}, 1)}
	l.items = append(l.items, item{channel: channelOffer})
	l.entities = len(d.desc.Entities)
	for i := range d.desc.Entities {
		id := d.desc.Entities[i].ID
		if state := h.states.JSON(id); state != nil {
			l.items = append(l.items, item{channel: channelStates, entity: id, data: state, old: true})
		}
	}
	l.ready <- struct{}{}
	d.endLink(errors.New("the device was opened again"))
	d.link = l
	return l, nil
}

// endLink ends the link to a device, if there is one.
func (d *hubDevice) endLink(reason error) {
	if d.link != nil {
		d.link.fail(reason)
		d.link = nil
	}
}

// Info implements transport.Link.
func (l *link) Info() transport.Info { return transport.Info{Transport: Name, Address: l.address} }

// pushOffer passes on that the device offers something else, then the states of new entities. The
// hub's lock is held.
func (l *link) pushOffer(added []string) {
	l.mu.Lock()
	l.items = slices.DeleteFunc(l.items, func(i item) bool { return i.channel == channelOffer })
	l.items = append(l.items, item{channel: channelOffer})
	l.signal()
	l.mu.Unlock()
	for _, id := range added {
		if state := l.hub.states.JSON(id); state != nil {
			l.pushState(id, state, true)
		}
	}
}

// pushState adds the state of an entity; nil if it was removed. It never blocks. The hub's lock
// is held.
func (l *link) pushState(id string, state json.RawMessage, old bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.items = append(l.items, item{channel: channelStates, entity: id, data: state, old: old})
	if len(l.items) > maxStates+2*l.entities {
		l.compact()
	}
	l.signal()
}

// compact keeps only the newest state of each entity.
func (l *link) compact() {
	seen := make(map[string]bool, l.entities)
	kept := make([]item, 0, l.entities)
	for _, it := range slices.Backward(l.items) {
		if it.channel == channelStates {
			if seen[it.entity] {
				continue
			}
			seen[it.entity] = true
		}
		kept = append(kept, it)
	}
	slices.Reverse(kept)
	l.items = kept
}

// signal wakes a waiting Recv.
func (l *link) signal() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// Recv implements transport.Link. Its frame is small, because thousands of goroutines wait in it:
// see deliver.
func (l *link) Recv(ctx context.Context) (m transport.Message, err error) {
	for !l.deliver(&m, &err) {
		select {
		case <-l.ready:
		case <-ctx.Done():
			return m, ctx.Err()
		}
	}
	return m, err
}

// deliver sets the next message, or why there is none. It returns false if there is nothing.
//
//go:noinline
func (l *link) deliver(to *transport.Message, failed *error) bool {
	items, err := l.next()
	switch {
	case len(items) == 0:
		*failed = err
		return err != nil
	case items[0].channel == channelOffer:
		*to, *failed = l.offer()
	case items[0].channel == channelResult:
		*to = transport.Message{Channel: channelResult, Data: items[0].data}
	default:
		*to = statesMessage(items)
	}
	if *failed == nil {
		l.trace(transport.In, *to)
	}
	return true
}

// next takes what makes the next message: states of different entities that come after each
// other, or one of the others.
func (l *link) next() ([]item, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.err, transport.ErrClosed) || len(l.items) == 0 {
		if l.err != nil {
			l.signal() // for another Recv
		}
		return nil, l.err
	}
	n := 1
	if first := l.items[0]; first.channel == channelStates {
		seen := map[string]bool{first.entity: true}
		for n < len(l.items) && l.items[n].channel == channelStates && l.items[n].old == first.old && !seen[l.items[n].entity] {
			seen[l.items[n].entity] = true
			n++
		}
	}
	taken := slices.Clone(l.items[:n])
	clear(l.items[:n])
	if l.items = l.items[n:]; len(l.items) == 0 {
		l.items = nil // an idle link keeps no space
	} else {
		l.signal()
	}
	return taken, nil
}

// offer returns the message with the newest offer of the device.
func (l *link) offer() (transport.Message, error) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	d := l.hub.devices[l.address]
	if d == nil || d.link != l {
		return transport.Message{}, errors.New("the device was removed")
	}
	l.described = true
	data, err := l.hub.offerOf(d)
	l.mu.Lock()
	l.entities = len(d.desc.Entities)
	l.mu.Unlock()
	return transport.Message{Channel: channelOffer, Data: data, Retained: true}, err
}

func statesMessage(items []item) transport.Message {
	var out bytes.Buffer
	for i, it := range items {
		out.WriteByte("{,"[min(i, 1)])
		out.WriteString(strconv.Quote(it.entity)) // entity IDs are plain
		out.WriteByte(':')
		if it.data == nil {
			out.WriteString("null")
		}
		out.Write(it.data)
	}
	out.WriteByte('}')
	return transport.Message{Channel: channelStates, Data: out.Bytes(), Retained: items[0].old}
}

// trace passes a message to the trace, without what may be a secret.
func (l *link) trace(direction transport.Direction, m transport.Message) {
	if m.Channel == channelOffer || len(m.Data) > maxResponse {
		size := len(m.Data)
		m.Data = nil
		l.Trace(direction, m, fmt.Sprintf("%d bytes", size))
		return
	}
	l.Trace(direction, m, "")
}

// Send implements transport.Link. It takes a call; the answer comes as a result.
func (l *link) Send(ctx context.Context, m transport.Message) error {
	var c call
	err := ctx.Err()
	if err == nil && (m.Channel != channelCall || json.Unmarshal(m.Data, &c) != nil) {
		err = errors.New("not a call of a service")
	}
	if err == nil {
		err = l.hub.mayCall(l, &c)
	}
	var calling context.Context
	if err == nil {
		calling, err = l.begin(&c)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	wait := l.startPicture(&c)
	if !c.isPicture() {
		wait, err = l.conn.Start(ctx, "call_service", fieldsOf(&c))
	}
	if err != nil {
		l.answer(&c, nil)
		l.calls.Done()
		if !errors.Is(err, api.ErrUnsent) {
			l.fail(err)
		}
		return err
	}
	if c.Secret {
		l.Trace(transport.Out, transport.Message{Channel: channelCall}, fmt.Sprintf("%s.%s, not shown because it may have a code", c.Domain, c.Service))
	} else {
		l.trace(transport.Out, m)
	}
	go func() {
		defer l.calls.Done()
		l.answer(&c, l.perform(calling, &c, wait))
	}()
	return nil
}

// fieldsOf returns the fields of the command that calls a service.
func fieldsOf(c *call) map[string]any {
	fields := map[string]any{"domain": c.Domain, "service": c.Service}
	if len(c.Entities) > 0 {
		fields["target"] = map[string]any{"entity_id": c.Entities}
	}
	if len(c.Data) > 0 {
		fields["service_data"] = c.Data
	}
	if c.Answer {
		fields["return_response"] = true
	}
	return fields
}

// begin notes a call. It returns a context that ends with the link: the answer may come long after
// the caller has left.
func (l *link) begin(c *call) (context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if len(l.pending) >= maxCalls {
		return nil, fmt.Errorf("%d calls wait for an answer of Home Assistant; limit is %d", len(l.pending), maxCalls)
	}
	if l.pending == nil {
		l.pending = make(map[*call]context.CancelFunc)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.pending[c] = cancel
	l.calls.Add(1)
	return ctx, nil
}

// mayCall checks that a call is about entities of the device, and a service that acts on them.
func (h *Hub) mayCall(l *link, c *call) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[l.address]
	if d == nil || d.link != l {
		return errors.New("the device was removed")
	}
	if !c.isPicture() && !slices.ContainsFunc(d.services, func(i int) bool { return h.services[i].Domain == c.Domain && h.services[i].Name == c.Service }) {
		return fmt.Errorf("Home Assistant has no service %s.%s for this device", c.Domain, c.Service)
	}
	if len(c.Entities) == 0 {
		return errors.New("the call names no entity")
	}
	for _, id := range c.Entities {
		if h.owners[id] != d {
			return fmt.Errorf("the device has no entity %s", ferrule.Clean(id, 64))
		}
	}
	return nil
}

// answer is what Home Assistant answers to call_service.
type answer struct {
	Context struct {
		ID string `json:"id"`
	} `json:"context"`
	Response json.RawMessage `json:"response"`
}

// perform waits for the answer to a call. It returns nil if the connection was lost: the link then
// ends without a result.
func (l *link) perform(ctx context.Context, c *call, wait func(context.Context, any) error) *result {
	var got answer
	err := wait(ctx, &got)
	r := &result{ID: c.ID, Context: ferrule.Clean(got.Context.ID, 64)}
	var refused *api.Error
	switch {
	case errors.As(err, &refused):
		r.Error = &callError{ferrule.Clean(refused.Code, 64), ferrule.Clean(refused.Message, maxMessage)}
	case err != nil:
		l.fail(err)
		return nil
	case c.isPicture():
		r.Response = got.Response
	case c.Answer:
		r.Response = shownResponse(got.Response)
	}
	return r
}

// answer passes on a result.
func (l *link) answer(c *call, r *result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending[c]()
	if delete(l.pending, c); len(l.pending) == 0 {
		l.pending = nil
	}
	if r == nil {
		return
	}
	if data, err := json.Marshal(r); err == nil {
		l.items = append(l.items, item{channel: channelResult, data: data})
		l.signal()
	}
}

// fail ends the link. What has arrived can still be received.
func (l *link) fail(reason error) {
	l.mu.Lock()
	if l.err == nil || errors.Is(reason, transport.ErrClosed) {
		l.err = reason
	}
	l.signal()
	l.mu.Unlock()
}

// Close implements transport.Link.
func (l *link) Close() error {
	l.fail(transport.ErrClosed)
	l.mu.Lock()
	for _, cancel := range l.pending {
		cancel()
	}
	l.mu.Unlock()
	l.calls.Wait()
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if d := l.hub.devices[l.address]; d != nil && d.link == l {
		d.link = nil
	}
	return nil
}
