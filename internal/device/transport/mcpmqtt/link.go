package mcpmqtt

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqttclient"
)

const (
	openTimeout = 15 * time.Second
	sendTimeout = 5 * time.Second
	byeTimeout  = time.Second
	// Messages that nobody has received yet. A server beyond them is cut off.
	maxQueue      = 256
	maxQueueBytes = 4 << 20
)

// link is a session with one server, on a connection of its own.
type link struct {
	transport.Tracer
	server  Server
	address string
	id      string // of this client
	conn    *mqttclient.Conn
	leave   func() // ends the connection and waits
	release func()

	in      chan transport.Message
	size    atomic.Int64 // bytes in in
	begun   atomic.Bool  // initialize was sent
	closing sync.Once

	mu     sync.Mutex
	reason error
	ended  chan struct{} // closed when reason is set
}

// open connects to the broker for a session.
func (c *Connector) open(ctx context.Context, s Server) (transport.Link, error) {
	l := &link{
		server: s, address: c.address(s.ID), id: "ferrule-" + rand.Text()[:12],
		in: make(chan transport.Message, maxQueue), ended: make(chan struct{}),
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	cfg := c.cfg.Client
	cfg.ClientID, cfg.Properties = l.id, ConnectProperties(TypeClient)
	cfg.Will = &mqttclient.Publication{Topic: ClientPresence(l.id), Payload: Disconnected, QoS: 1, Properties: PublishProperties(TypeClient, l.id)}
	conn, leave, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l.conn, l.leave = conn, leave
	if conn.Version() < 5 {
		leave()
		return nil, ErrVersion
	}
	_, err = conn.Subscribe(ctx, l.take,
		mqttclient.Filter{Topic: s.Capability(), QoS: 1}, mqttclient.Filter{Topic: s.RPC(l.id), QoS: 1, NoLocal: true})
	if err != nil {
		leave()
		return nil, err
	}
	c.session(s.ID, 1)
	l.release = func() { c.session(s.ID, -1) }
	go func() {
		<-conn.Done()
		l.end(fmt.Errorf("the session's connection is lost: %w", conn.Err()))
		leave() // the client would connect again, with the same ID
	}()
	return l, nil
}

// dial opens one connection. The caller must call leave when it is lost.
func dial(ctx context.Context, cfg mqttclient.Config) (conn *mqttclient.Conn, leave func(), err error) {
	client := mqttclient.New(cfg, slog.New(slog.DiscardHandler)) // the dock logs what matters
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	changed := client.Changed()
	go func() { done <- client.Run(running) }()
	leave = sync.OnceFunc(func() {
		stop()
		<-done
	})
	select {
	case <-changed:
	case err := <-done:
		done <- nil
		leave()
		return nil, nil, err
	case <-ctx.Done():
		leave()
		return nil, nil, ctx.Err()
	}
	if state := client.State(); !state.Connected {
		leave()
		return nil, nil, errors.New(state.Reason)
	}
	if conn, err = client.Connect(ctx); err != nil {
		leave()
		return nil, nil, err
	}
	return conn, leave, nil
}

// Info implements transport.Link.
func (l *link) Info() transport.Info {
	return transport.Info{Transport: mqttclient.Name, Address: l.address, InitializeFirst: true}
}

// take handles a message of the server. A retained one was not for this session.
func (l *link) take(m mqttclient.Message) {
	if sender := Sender(m); m.Retained || sender != "" && sender != l.server.ID {
		return
	}
	if bytes.Contains(m.Payload, []byte(MethodDisconnected)) && method(m.Payload) == MethodDisconnected {
		l.end(errors.New("the server ended the session"))
		return
	}
	if l.size.Add(int64(len(m.Payload))) > maxQueueBytes {
		l.end(errFlood)
		return
	}
	select {
	case l.in <- transport.Message{Data: m.Payload}:
	default:
		l.end(errFlood)
	}
}

var errFlood = errors.New("the server sends faster than its messages can be read")

// end notes why the link is of no use any more. The first reason counts.
func (l *link) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == nil {
		l.reason = reason
		close(l.ended)
	}
}

// err returns why the link has ended; nil if it has not.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// Recv implements transport.Link. It returns what arrived before the link ended.
func (l *link) Recv(ctx context.Context) (transport.Message, error) {
	if err := l.err(); errors.Is(err, transport.ErrClosed) {
		return transport.Message{}, err
	}
	select {
	case m := <-l.in:
		return l.received(m), nil
	default:
	}
	select {
	case m := <-l.in:
		return l.received(m), nil
	case <-l.ended:
		return transport.Message{}, l.err()
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	}
}

func (l *link) received(m transport.Message) transport.Message {
	l.size.Add(-int64(len(m.Data)))
	l.Trace(transport.In, m, "")
	return m
}

// Send implements transport.Link.
func (l *link) Send(ctx context.Context, m transport.Message) error {
	if err := l.err(); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	p := mqttclient.Publication{Topic: l.server.RPC(l.id), Payload: m.Data, QoS: 1, Properties: PublishProperties(TypeClient, l.id)}
	if bytes.Contains(m.Data, []byte(methodInitialize)) && method(m.Data) == methodInitialize {
		if l.begun.Swap(true) {
			return fmt.Errorf("%w: a second initialize needs a new session", transport.ErrUnsent)
		}
		p.Topic = l.server.Control()
	}
	if deadline, ok := ctx.Deadline(); ok {
		p.Expiry = time.Until(deadline)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	l.Trace(transport.Out, m, "")
	err := l.conn.Publish(ctx, p)
	var undelivered *transport.Undelivered
	switch {
	case err == nil || errors.Is(err, transport.ErrUnsent):
		return err
	case errors.As(err, &undelivered):
		if !undelivered.Denied {
			l.end(errGone)
			return fmt.Errorf("%w: %w", transport.ErrUnsent, errGone)
		}
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	l.end(err)
	return err
}

// errGone means that the broker knows nobody who gets the messages.
var errGone = errors.New("the server is not connected to the broker, or has forgotten this session")

// Close implements transport.Link. The will tells the server as well, if it listens.
func (l *link) Close() error {
	l.end(transport.ErrClosed)
	l.closing.Do(func() {
		if l.begun.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
			defer cancel()
			l.conn.Publish(ctx, mqttclient.Publication{
				Topic: l.server.RPC(l.id), Payload: Disconnected, QoS: 1, Properties: PublishProperties(TypeClient, l.id),
			}) // the connection ends in any case
		}
		l.leave()
		l.release()
	})
	return nil
}
