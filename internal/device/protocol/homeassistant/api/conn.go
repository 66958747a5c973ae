package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

const (
	// firstID is the ID of the message that ends the login.
	firstID = 1
	// maxRequest is the length of the longest message that Home Assistant accepts.
	maxRequest = 4 << 20
	// maxPending limits the requests that wait for an answer.
	maxPending = 1024
	// unsubscribeTime is how long the end of a subscription may take.
	unsubscribeTime = 10 * time.Second
	// askEvery is how often Home Assistant is asked for an answer, and askTime how long it has.
	// Pings of the WebSocket notice its silence sooner.
	askEvery, askTime = time.Minute, time.Minute
)

// Conn is one connection, logged in. Its methods may be called concurrently.
type Conn struct {
	link    transport.Link
	version string
	in      *queue
	tasks   sync.WaitGroup
	done    chan struct{}
	// sending is held while a message gets its ID and is sent: IDs must rise.
	sending chan struct{}

	mu      sync.Mutex
	err     error
	lastID  int64
	pending map[int64]chan message
	subs    map[int64]func(json.RawMessage)
}

func newConn(link transport.Link, version string, backlog int) *Conn {
	c := &Conn{
		link: link, version: version, in: newQueue(backlog), lastID: firstID,
		done: make(chan struct{}), sending: make(chan struct{}, 1),
		pending: make(map[int64]chan message), subs: make(map[int64]func(json.RawMessage)),
	}
	c.tasks.Go(func() { c.in.fill(link) })
	c.tasks.Go(c.dispatch)
	c.tasks.Go(c.keepAlive)
	return c
}

// keepAlive ends a connection on which bytes come, but no answers.
func (c *Conn) keepAlive() {
	for {
		select {
		case <-c.done:
			return
		case <-time.After(askEvery):
		}
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		err := c.Request(ctx, "ping", nil, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			c.in.end(inbound.ErrSilent)
			c.link.Close()
			return
		}
	}
}

// Done returns a channel that is closed when the connection is lost. Everything that came
// before was dispatched then. Err is why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection was lost; nil if it was not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Version is that of Home Assistant, such as 2026.7.4.
func (c *Conn) Version() string { return c.version }

// close ends the connection and waits until it has ended.
func (c *Conn) close() {
	c.link.Close()
	<-c.done
	c.tasks.Wait()
}

// dispatch hands answers and events on until the connection ends.
func (c *Conn) dispatch() {
	var err error
	for err == nil {
		var data []byte
		if data, err = c.in.next(); err == nil {
			err = decode(data, c.handle)
		}
	}
	c.mu.Lock()
	c.err = lostError(err)
	c.mu.Unlock()
	c.in.close()
	c.link.Close()
	close(c.done)
}

// handle handles a message. One that was not asked for is dropped.
func (c *Conn) handle(m message) {
	c.mu.Lock()
	answer, event := c.pending[m.ID], c.subs[m.ID]
	if m.Type != "event" {
		event = nil
		delete(c.pending, m.ID) // the first answer counts
	}
	c.mu.Unlock()
	switch {
	case event != nil:
		event(m.Event)
	case m.Type == "event":
	case answer != nil:
		answer <- m // it has room for one
	}
}

// Request sends a command with its fields and decodes the result into out, unless that is nil.
// It waits until ctx ends: Home Assistant answers some services only when they have ended. The
// error is an *Error if Home Assistant answered with one, and ErrUnsent if nothing was sent.
// After any other error it is not known whether the command was carried out. It is never sent
// again.
func (c *Conn) Request(ctx context.Context, command string, fields map[string]any, out any) error {
	_, err := c.request(ctx, command, fields, out, nil)
	return err
}

// Subscribe sends a command whose answers are events, and calls fn with each, from one
// goroutine, until stop is called or the connection is lost. It may be called before Subscribe
// returns, and once more while stop is called. fn must not block, and owns what it gets.
func (c *Conn) Subscribe(ctx context.Context, command string, fields map[string]any, fn func(event json.RawMessage)) (stop func(), err error) {
	id, err := c.request(ctx, command, fields, nil, fn)
	if err != nil {
		c.unsubscribe(id)
		return nil, err
	}
	return sync.OnceFunc(func() { c.unsubscribe(id) }), nil
}

// unsubscribe ends a subscription. Home Assistant is told, but nobody waits for that.
func (c *Conn) unsubscribe(id int64) {
	c.mu.Lock()
	known := c.subs[id] != nil
	delete(c.subs, id)
	c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	if known {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), unsubscribeTime)
			defer cancel()
			// An error means that the subscription or the connection has ended already.
			c.Request(ctx, "unsubscribe_events", map[string]any{"subscription": id}, nil)
		}()
	}
}

// request sends a command and waits for the answer. Events that come with its ID go to fn,
// unless that is nil.
func (c *Conn) request(ctx context.Context, command string, fields map[string]any, out any, fn func(json.RawMessage)) (int64, error) {
	id, answer, err := c.send(ctx, command, fields, fn)
	if err != nil {
		return id, err
	}
	return id, c.await(ctx, command, id, answer, out)
}

// Start sends a command, and returns a function that waits for the answer as Request does. Err is
// ErrUnsent if nothing was sent.
func (c *Conn) Start(ctx context.Context, command string, fields map[string]any) (wait func(ctx context.Context, out any) error, err error) {
	id, answer, err := c.send(ctx, command, fields, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, out any) error { return c.await(ctx, command, id, answer, out) }, nil
}

// await waits for the answer to a command.
func (c *Conn) await(ctx context.Context, command string, id int64, answer chan message, out any) error {
	var m message
	select {
	case m = <-answer:
	case <-c.done:
		select {
		case m = <-answer: // it came before the connection was lost
		default:
			return fmt.Errorf("the connection was lost before Home Assistant answered: %w", c.Err())
		}
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
		return fmt.Errorf("Home Assistant has not answered: %w", ctx.Err())
	}
	if err := m.failure(); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(m.Result, out); err != nil {
		return fmt.Errorf("the answer of Home Assistant to %s is broken: %w", command, err)
	}
	return nil
}

// send sends a command with the next ID.
func (c *Conn) send(ctx context.Context, command string, fields map[string]any, fn func(json.RawMessage)) (int64, chan message, error) {
	select {
	case c.sending <- struct{}{}:
	case <-c.done:
		return 0, nil, unsent(c.Err())
	case <-ctx.Done():
		return 0, nil, unsent(ctx.Err())
	}
	defer func() { <-c.sending }()
	all := make(map[string]any, len(fields)+2)
	maps.Copy(all, fields)
	c.mu.Lock()
	id, full, err := c.lastID+1, len(c.pending) >= maxPending, c.err
	c.mu.Unlock()
	all["id"], all["type"] = id, command
	data, encodeErr := json.Marshal(all)
	switch {
	case err != nil:
		return 0, nil, unsent(err)
	case encodeErr != nil:
		return 0, nil, unsent(encodeErr)
	case len(data) > maxRequest:
		return 0, nil, unsent(fmt.Errorf("the message has %d bytes; the limit of Home Assistant is %d", len(data), maxRequest))
	case full:
		return 0, nil, unsent(errors.New("too many requests wait for an answer"))
	}
	answer := make(chan message, 1)
	c.mu.Lock()
	c.lastID, c.pending[id] = id, answer
	if fn != nil {
		c.subs[id] = fn
	}
	c.mu.Unlock()
	if err := c.link.Send(ctx, transport.Message{Data: data}); err != nil {
		c.mu.Lock()
		delete(c.pending, id)
		delete(c.subs, id)
		c.mu.Unlock()
		return 0, nil, lostError(err)
	}
	return id, answer, nil
}
