package mqttclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// keepAlive is what CONNECT promises: a packet at least this often.
	keepAlive = 30 * time.Second
	// maxInFlight limits the publications without PUBACK.
	maxInFlight = 1000
	// writeTimeout is how long one packet may take to be written.
	writeTimeout = 10 * time.Second
)

// Conn is one connection, from CONNACK until it breaks. Its methods may be called
// concurrently.
type Conn struct {
	codec  codec
	conn   net.Conn
	in     *readAhead
	frames *bufio.Reader
	out    *queue
	limits limits
	// properties are those of CONNACK.
	properties []Property
	log        *slog.Logger
	tasks      sync.WaitGroup
	done       chan struct{}
	// slots has a place for each publication that may wait for its PUBACK.
	slots chan struct{}

	mu      sync.Mutex
	err     error
	nextID  uint16
	pending map[uint16]*request
	subs    subscriptions
}

// request is a packet whose answer is awaited. It stays in Conn.pending when nobody waits
// any longer: its ID must not be used again before the broker has answered.
type request struct {
	kind   byte        // of the answer
	answer chan packet // has room for it
}

// start runs a connection whose CONNACK was read.
func (c *Conn) start() {
	c.slots = make(chan struct{}, c.limits.inFlight)
	c.done = make(chan struct{})
	c.pending = make(map[uint16]*request)
	c.subs.init()
	c.tasks.Go(c.receive)
	c.tasks.Go(func() { c.fail(c.out.write(c.conn)) })
	c.tasks.Go(c.keepAlive)
}

// Done returns a channel that is closed when the connection is lost. Err is why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection was lost; nil before that.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Version is 5 or 4, which is MQTT 3.1.1.
func (c *Conn) Version() byte { return c.codec.version() }

// Properties returns the user properties with which the broker accepted the connection.
func (c *Conn) Properties() []Property { return c.properties }

// fail ends the connection. Only the first reason counts.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	first := c.err == nil && err != nil
	if first {
		c.err = err
		close(c.done)
		c.in.close()
		c.out.close()
	}
	c.mu.Unlock()
	if first {
		c.conn.Close() // without the lock: TLS may wait for a peer that hangs
	}
}

// leave ends the connection in order. A will is published: the client is gone either way.
func (c *Conn) leave(will bool) {
	bye := byePacket
	if will {
		if bye = byeWithWill; c.Version() == version4 {
			bye = nil // 3.1.1 publishes the will if there is no DISCONNECT
		}
	}
	if bye != nil {
		o := c.out.add(bye)
		select {
		case <-o.done:
		case <-c.done:
		case <-time.After(time.Second):
		}
	}
	c.fail(errors.New("the connection was closed here"))
	c.tasks.Wait()
}

// receive decodes packets and dispatches messages until the connection ends.
func (c *Conn) receive() {
	for {
		// MQTT 5 announces the limit; in 3.1.1 a broker cannot know it.
		first, body, err := readFrame(c.frames, c.Version() == version4)
		if errors.Is(err, errTooLong) && c.Version() == version4 {
			c.log.Warn("skipped a message that is too long", "limit", maxPacket)
			continue
		}
		if err != nil {
			c.fail(lostError(err))
			return
		}
		p, err := decode(c.codec, first, body)
		if err != nil {
			c.fail(fmt.Errorf("the broker sent something that is not MQTT: %w", err))
			return
		}
		switch p.kind {
		case publish:
			if validText(p.msg.Topic) && p.msg.Topic != "" {
				c.subs.dispatch(p.msg, p.subIDs)
			}
			if p.qos == 1 {
				c.out.add(c.codec.puback(p.id))
			}
		case puback, suback, unsuback:
			c.answer(p)
		case disconnect:
			c.fail(disconnectError(p))
			return
		case connack:
			c.fail(errors.New("the broker sent something that is not MQTT: a second CONNACK"))
			return
		}
	}
}

// answer hands an answer to the request that waits for it.
func (c *Conn) answer(p packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.pending[p.id]
	if r == nil || r.kind != p.kind {
		return
	}
	delete(c.pending, p.id)
	if r.kind == puback {
		<-c.slots
	}
	r.answer <- p
}

// keepAlive sends pings, and ends a connection on which nothing comes back.
func (c *Conn) keepAlive() {
	every := c.limits.keepAlive / 6
	if every <= 0 {
		every = keepAlive / 6 // the broker wants none; a dead one must be noticed
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-c.done:
			return
		case now := <-ticker.C:
			silent := now.Sub(time.Unix(0, c.in.last.Load()))
			if c.in.full() {
				silent = 0 // nobody reads
			}
			switch {
			case silent > 8*every:
				c.fail(fmt.Errorf("the broker has not answered for %v", silent.Round(time.Second)))
			case silent > 2*every, now.Sub(time.Unix(0, c.out.last.Load())) > 2*every:
				c.out.add(pingPacket)
			}
		}
	}
}

// send queues a packet that is answered. The packet is made with its ID, which is unique.
// It is called with mu held.
func (c *Conn) send(kind byte, encode func(id uint16) []byte) (*request, *outgoing, error) {
	if c.err != nil {
		return nil, nil, c.err
	}
	if len(c.pending) >= 60000 {
		return nil, nil, errors.New("the broker does not answer")
	}
	for {
		if c.nextID++; c.nextID != 0 && c.pending[c.nextID] == nil {
			break
		}
	}
	r := &request{kind: kind, answer: make(chan packet, 1)}
	id := c.nextID
	c.pending[id] = r
	o := c.out.add(encode(id))
	o.id = id
	return r, o, nil
}

// withdraw takes a packet back that was not written yet.
func (c *Conn) withdraw(o *outgoing) bool {
	if !o.withdraw() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.pending[o.id]; r != nil {
		delete(c.pending, o.id)
		if r.kind == puback {
			<-c.slots
		}
	}
	return true
}

// unsent returns the error for a message that was not sent at all.
func unsent(err error) error { return fmt.Errorf("%w: %w", ErrUnsent, err) }

// Publish publishes a message. With QoS 1 it returns when the broker has it. The error is
// ErrUnsent if no byte was sent, and a *Undelivered if the broker says
// that nobody subscribes or that its rules forbid it (MQTT 5 only). After any other error
// the message may have been delivered. It is never sent again.
func (c *Conn) Publish(ctx context.Context, p Publication) error {
	if err := c.checkPublication(&p); err != nil {
		return unsent(err)
	}
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}
	if p.QoS == 0 {
		o := c.out.add(c.codec.publish(&p, 0))
		return c.written(ctx, o)
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.done:
		return unsent(c.Err())
	case <-ctx.Done():
		return unsent(ctx.Err())
	}
	c.mu.Lock()
	r, o, err := c.send(puback, func(id uint16) []byte { return c.codec.publish(&p, id) })
	c.mu.Unlock()
	if err != nil {
		<-c.slots
		return unsent(err)
	}
	if err := c.written(ctx, o); err != nil {
		return err
	}
	select {
	case answer := <-r.answer:
		return deliveryError(p.Topic, answer)
	default:
	}
	select {
	case answer := <-r.answer:
		return deliveryError(p.Topic, answer)
	case <-c.done:
		return fmt.Errorf("the connection was lost before the broker confirmed the message: %w", c.Err())
	case <-ctx.Done():
		return fmt.Errorf("the broker has not confirmed the message: %w", ctx.Err())
	}
}

// written waits until a packet is written.
func (c *Conn) written(ctx context.Context, o *outgoing) error {
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		if c.withdraw(o) {
			return unsent(ctx.Err())
		}
		return fmt.Errorf("the message may have been sent: %w", ctx.Err())
	}
}

// checkPublication returns why a message cannot be published on this connection.
func (c *Conn) checkPublication(p *Publication) error {
	if err := checkPublication(p); err != nil {
		return err
	}
	size := len(p.Topic) + len(p.Payload) + 32
	for _, u := range p.Properties {
		size += len(u.Name) + len(u.Value) + 5
	}
	switch {
	case size > c.limits.packet:
		return fmt.Errorf("the message has %d bytes; the limit is %d", len(p.Payload), c.limits.packet)
	case p.QoS > c.limits.qos:
		return errors.New("the broker accepts no messages with QoS 1")
	case p.Retain && c.limits.noRetain:
		return errors.New("the broker keeps no retained messages")
	case c.out.full():
		return errors.New("the broker does not read what is sent to it")
	}
	return nil
}

// deliveryError returns what a PUBACK says about the delivery.
func deliveryError(topic string, answer packet) error {
	switch code := answer.code(); {
	case code == 0x10:
		return &Undelivered{Reason: fmt.Sprintf("nobody subscribes to %s", clean(topic))}
	case code == 0x87:
		return &Undelivered{Denied: true, Reason: fmt.Sprintf("the rules of the broker forbid to publish to %s", clean(topic))}
	case code >= 0x80:
		return &Undelivered{Reason: fmt.Sprintf("the broker refused the message to %s: %s", clean(topic), reasonText(code, answer.reason))}
	}
	return nil
}
