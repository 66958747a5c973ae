package hass

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// Subscriber is the ability of a Link to a device behind a broker to receive more topics.
type Subscriber interface {
	// Subscribe passes the messages on these topics to Recv from now on, each with its
	// topic as Channel. What the broker has kept comes first, as Retained. It is called
	// once, in Greet.
	Subscribe(ctx context.Context, topics []string) error
}

// channelDiscovery is the Channel of the first message on a link: an offer as JSON.
const channelDiscovery = "discovery"

// offer is all that a device has said about itself, and how to read it.
type offer struct {
	Configs []config `json:"configs"` // sorted by component, node and object
	// Settings lets agents change settings of the device; Disabled includes what its
	// publisher marks as disabled.
	Settings bool `json:"settings,omitempty"`
	Disabled bool `json:"disabled,omitempty"`
	// Foreign lists topics in these configs that another device had first.
	Foreign []string `json:"foreign,omitempty"`
	// Topics has each command topic in these configs, with the reason if it must not be
	// used.
	Topics map[string]string `json:"topics,omitempty"`
	// Prefix is the discovery prefix of the broker.
	Prefix string `json:"prefix,omitempty"`
}

// config is one discovery message, with the parts of its topic.
type config struct {
	Component string `json:"component"`
	Node      string `json:"node,omitempty"`
	Object    string `json:"object"`
	Payload   string `json:"payload"`
}

// The limits of the messages that a link keeps for its reader.
const (
	maxMessages = 256
	maxBytes    = 1 << 20
)

// sendTime limits a Send without a deadline. minExpiry is the shortest time that a broker
// is told to keep a message: it counts in seconds.
const (
	sendTime  = 10 * time.Second
	minExpiry = time.Second
)

// link is the Link to one device. It has no goroutine: the connection passes messages to
// it, and its reader takes them.
type link struct {
	transport.Tracer
	hub     *Hub
	conn    *mqttclient.Conn
	address string
	terms   *terms

	mu       sync.Mutex
	messages []transport.Message
	size     int
	dropped  int           // since the last Recv
	ready    chan struct{} // has an element if there is something
	err      error         // why nothing more can be received
	ends     []func()
}

// opener returns the function that opens links to a device as it was when an instance of it
// was reported. What is read over the link is then what was judged for the sighting.
func (h *Hub) opener(address string, instance uint64) func(context.Context) (transport.Link, error) {
	return func(context.Context) (transport.Link, error) { return h.open(address, instance) }
}

// open returns a link to an instance of a device.
func (h *Hub) open(address string, instance uint64) (transport.Link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[address]
	switch {
	case h.conn == nil:
		return nil, fmt.Errorf("the broker %s is unreachable", h.cfg.Broker)
	case d == nil:
		return nil, errors.New("the device was removed")
	case d.dirty || !h.complete:
		return nil, errors.New("the device is changing its description")
	case d.instance != instance:
		return nil, errChanged // the new instance is about to be reported
	}
	configs, err := unpack(d.packed)
	if err != nil {
		return nil, err
	}
	l := &link{hub: h, conn: h.conn, address: address, ready: make(chan struct{}, 1)}
	l.terms = h.termsOf(d, h.parse(d, configs))
	data, err := json.Marshal(&l.terms.offer)
	if err != nil {
		return nil, err
	}
	l.messages = []transport.Message{{Channel: channelDiscovery, Data: data, Retained: true}}
	l.size = len(data)
	d.endLink(errors.New("the device was opened again"))
	d.link = l
	return l, nil
}

// endLink ends the link to a device, if there is one.
func (d *device) endLink(reason error) {
	if d.link != nil {
		d.link.fail(reason)
		d.link = nil
	}
}

// Info implements transport.Link.
func (l *link) Info() transport.Info {
	return transport.Info{Transport: mqttclient.Name, Address: l.address}
}

// Subscribe implements Subscriber. Topics that are not the device's are left out.
func (l *link) Subscribe(ctx context.Context, topics []string) error {
	var filters []mqttclient.Filter
	for _, topic := range topics {
		reason := l.terms.refused[topic]
		if reason == "" {
			reason = checkState(topic, l.hub.cfg.Prefix)
		}
		if reason != "" {
			l.Note(fmt.Sprintf("not subscribed to %s: %s", ferrule.Clean(topic, 128), reason))
			continue
		}
		filters = append(filters, mqttclient.Filter{Topic: topic})
	}
	if len(filters) == 0 {
		return nil
	}
	end, err := l.conn.Subscribe(ctx, l.push, filters...)
	if err == nil {
		return l.addEnd(end)
	}
	if len(filters) == 1 {
		return err
	}
	// The broker may refuse one of them: have the others.
	some := false
	for _, f := range filters {
		end, single := l.conn.Subscribe(ctx, l.push, f)
		if single != nil {
			l.Note(fmt.Sprintf("not subscribed to %s: %v", ferrule.Clean(f.Topic, 128), single))
			continue
		}
		some = true
		if err := l.addEnd(end); err != nil {
			return err
		}
	}
	if !some {
		return err
	}
	return nil
}

// addEnd keeps a function that ends a subscription, or calls it if the link has ended.
func (l *link) addEnd(end func()) error {
	l.mu.Lock()
	err := l.err
	if err == nil {
		l.ends = append(l.ends, end)
	}
	l.mu.Unlock()
	if err != nil {
		end()
	}
	return err
}

// push adds a message. The connection calls it, so it never blocks: the oldest messages
// are dropped for lack of space.
func (l *link) push(m mqttclient.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.messages = append(l.messages, transport.Message{Channel: m.Topic, Data: m.Payload, Retained: m.Retained})
	l.size += len(m.Payload)
	for len(l.messages) > 1 && (len(l.messages) > maxMessages || l.size > maxBytes) {
		first := 0
		if l.messages[0].Channel == channelDiscovery {
			first = 1
		}
		l.size -= len(l.messages[first].Data)
		l.messages = append(l.messages[:first], l.messages[first+1:]...)
		l.dropped++
	}
	l.signal()
}

// signal wakes a waiting Recv.
func (l *link) signal() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// Recv implements transport.Link. Its frame is small, because thousands of goroutines wait
// in it: see deliver.
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
	m, dropped, ok, err := l.next()
	if dropped > 0 {
		l.Note(fmt.Sprintf("dropped %d messages: they came faster than they were read", dropped))
	}
	if ok {
		l.trace(transport.In, m)
		if m.Channel == channelDiscovery {
			l.terms.offer = offer{} // its reader has it now
		}
	}
	*to, *failed = m, err
	return ok || err != nil
}

func (l *link) next() (m transport.Message, dropped int, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped, l.dropped = l.dropped, 0
	if errors.Is(l.err, transport.ErrClosed) || len(l.messages) == 0 {
		if l.err != nil {
			l.signal() // for another Recv
		}
		return m, dropped, false, l.err
	}
	m = l.messages[0]
	l.messages[0] = transport.Message{}
	l.messages = l.messages[1:]
	l.size -= len(m.Data)
	if len(l.messages) == 0 {
		l.messages = nil // an idle link keeps no space
	} else {
		l.signal()
	}
	return m, dropped, true, nil
}

// trace passes a message to the trace, without what may be a secret.
func (l *link) trace(direction transport.Direction, m transport.Message) {
	switch {
	case m.Channel == channelDiscovery:
		size := len(m.Data)
		m.Data = nil
		l.Trace(direction, m, fmt.Sprintf("%d configs, %d bytes", len(l.terms.offer.Configs), size))
	case l.terms.secret[m.Channel]:
		size := len(m.Data)
		m.Data = nil
		l.Trace(direction, m, fmt.Sprintf("%d bytes, not shown because they may have a code", size))
	default:
		l.Trace(direction, m, "")
	}
}

// Send implements transport.Link. It publishes once and waits until the broker has the
// message.
func (l *link) Send(ctx context.Context, m transport.Message) error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if err == nil {
		err = ctx.Err()
	}
	if reason := l.mayPublish(m.Channel); err == nil && reason != "" {
		err = errors.New(reason)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	p := mqttclient.Publication{Topic: m.Channel, Payload: m.Data, QoS: 1, Expiry: l.expiry(ctx, m.Channel)}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	l.trace(transport.Out, m)
	err = l.conn.Publish(ctx, p)
	var undelivered *mqttclient.Undelivered
	switch {
	case errors.Is(err, mqttclient.ErrUnsent):
		return fmt.Errorf("%w: %s", transport.ErrUnsent, strings.TrimPrefix(err.Error(), mqttclient.ErrUnsent.Error()+": "))
	case errors.As(err, &undelivered):
		return &transport.Undelivered{Denied: undelivered.Denied, Reason: undelivered.Reason}
	case err != nil:
		l.fail(err)
	}
	return err
}

// mayPublish returns why nothing may be published to a topic; empty if it may.
func (l *link) mayPublish(topic string) string {
	if _, allowed := slices.BinarySearch(l.terms.allowed, l.hub.hash(topic)); allowed {
		return ""
	}
	return cmp.Or(l.terms.held[topic], heldOutside)
}

// expiry returns how long the broker may keep a command: until its caller stops waiting,
// or as long as its publisher says. A device that sleeps must not act later.
func (l *link) expiry(ctx context.Context, topic string) time.Duration {
	expiry := sendTime
	if deadline, ok := ctx.Deadline(); ok {
		expiry = time.Until(deadline)
	}
	if limit := l.terms.expiry[topic]; limit > 0 {
		expiry = min(expiry, limit)
	}
	return max(expiry, minExpiry)
}

// fail ends the link. What has arrived can still be received.
func (l *link) fail(reason error) {
	l.mu.Lock()
	ends := l.ends
	l.ends = nil
	if l.err == nil || errors.Is(reason, transport.ErrClosed) {
		l.err = reason
	}
	l.signal()
	l.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// Close implements transport.Link.
func (l *link) Close() error {
	l.fail(transport.ErrClosed)
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if d := l.hub.devices[l.address]; d != nil && d.link == l {
		d.link = nil
	}
	return nil
}
