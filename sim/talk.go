package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// talk is one conversation of one toy.
type talk struct {
	conn   xiaozhi.Conn
	toy    *Toy
	beside sync.WaitGroup // what the behaviour does beside answering

	number   int // how many conversations there have been
	requests int
	calls    int

	mu   sync.Mutex // held while it speaks
	held []byte     // an answer that waits for another
}

// Talk has the toy talk on a connection until that ends or ctx does; first tells
// that it says hello first, as on a WebSocket. It closes the connection, and
// returns nil if the peer ended it.
func (t *Toy) Talk(ctx context.Context, conn xiaozhi.Conn, first bool) error {
	ctx, cancel := context.WithCancel(ctx)
	t.mu.Lock()
	t.talks++
	c := &talk{conn: conn, toy: t, number: t.talks}
	t.mu.Unlock()
	defer c.beside.Wait()
	defer conn.Close()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if first || t.behaviour.hello != nil {
		if err := c.begin(ctx); err != nil {
			return err
		}
	}
	queue := make(chan []byte, waiting)
	defer close(queue)
	c.beside.Go(func() { c.work(ctx, queue) })
	for {
		m, err := conn.Recv(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		if !m.Binary {
			queue <- m.Data
		}
	}
}

// waiting is how many messages are read while a tool runs.
const waiting = 64

// work answers one message after the other, as firmware does: it reads on while a
// tool runs.
func (c *talk) work(ctx context.Context, queue <-chan []byte) {
	for message := range queue {
		if err := c.hear(ctx, message); err != nil {
			c.conn.Close()
			break
		}
	}
	for range queue { // nobody is there any more
	}
}

// begin says hello.
func (c *talk) begin(ctx context.Context) error {
	if c.toy.behaviour.hello != nil {
		return c.toy.behaviour.hello(ctx, c)
	}
	return c.say(ctx, c.toy.Hello("websocket"))
}

// hear has a message answered.
func (c *talk) hear(ctx context.Context, message []byte) error {
	req := parseMessage(message)
	if req.Method != "" {
		c.requests++
	}
	switch req.Method {
	case "tools/call":
		c.calls++
	case "tools/list":
		c.toy.mu.Lock()
		c.toy.lists++
		c.toy.mu.Unlock()
	}
	if c.toy.behaviour.message != nil {
		return c.toy.behaviour.message(ctx, c, req, message)
	}
	return c.answer(ctx, req, message)
}

// answer has the toy answer, and the behaviour write the answer.
func (c *talk) answer(ctx context.Context, req toyRequest, message []byte) error {
	answer := c.toy.Answer(ctx, message)
	if answer == nil {
		return nil
	}
	if c.toy.behaviour.answer != nil {
		return c.toy.behaviour.answer(ctx, c, req, answer)
	}
	return c.say(ctx, answer)
}

// say sends texts as they are.
func (c *talk) say(ctx context.Context, texts ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range texts {
		if err := c.conn.Send(ctx, xiaozhi.Message{Data: text}); err != nil {
			return err
		}
	}
	return nil
}

// sound sends a piece of sound.
func (c *talk) sound(ctx context.Context, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Send(ctx, xiaozhi.Message{Binary: true, Data: data})
}

// reply is an answer of one's own, in its envelope.
func (c *talk) reply(payload string, args ...any) []byte {
	return xiaozhi.Envelope(c.toy.Session(), fmt.Appendf(nil, payload, args...))
}

// text is an answer with a text in it.
func (c *talk) text(id int, text string) []byte {
	return c.reply(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%q}],"isError":false}}`, id, text)
}

// toyRequest is what a behaviour wants to know of a message.
type toyRequest struct {
	ID     int    `json:"id"`
	Method string `json:"method"`
	Params struct {
		Name   string `json:"name"`
		Cursor string `json:"cursor"`
	} `json:"params"`
}

func (r toyRequest) isCall() bool { return r.Method == "tools/call" }

func parseMessage(message []byte) toyRequest {
	var m struct {
		Payload toyRequest `json:"payload"`
	}
	json.Unmarshal(message, &m) // what cannot be read has no method
	return m.Payload
}

// ended is nil for a conversation that ended as conversations do.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || isEOF(err) {
		return nil
	}
	return err
}

// Dial opens a connection of a toy.
type Dial func(ctx context.Context) (xiaozhi.Conn, error)

// How a toy lives.
const (
	redial   = 5 * time.Second   // until it connects again
	deaf     = 120 * time.Second // without a message, a WebSocket is dead to it
	overlaps = 3 * time.Second   // until a second socket is opened
)

// Live has the toy connect, talk, and connect again, until ctx ends. It is for
// media by which a toy calls the server.
func (t *Toy) Live(ctx context.Context, dial Dial, first bool) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		conn, err := dial(ctx)
		if err == nil {
			over := make(chan struct{})
			listener := &patient{Conn: conn}
			listener.heard(time.Now())
			wg.Go(func() {
				defer close(over)
				t.Talk(ctx, listener, first)
			})
			t.stay(ctx, over, listener)
		}
		if sleep(ctx, t.pause()) != nil {
			return nil
		}
	}
	return nil
}

// stay waits until it is time for another connection: this one is over, or the
// behaviour forgets it, still open.
func (t *Toy) stay(ctx context.Context, over <-chan struct{}, conn *patient) {
	for {
		wait, forget := deaf, t.behaviour.forgets
		if forget {
			wait = overlaps
		}
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-time.After(wait):
			if forget || t.behaviour.impatient && conn.silence() >= deaf {
				return
			}
		}
	}
}

// pause is how long the toy waits before it connects again.
func (t *Toy) pause() time.Duration {
	if t.behaviour.storms {
		return time.Millisecond
	}
	return redial
}

// patient is a connection that knows when something last came.
type patient struct {
	xiaozhi.Conn
	mu   sync.Mutex
	last time.Time
}

func (p *patient) heard(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = now
}

func (p *patient) silence() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.last)
}

func (p *patient) Recv(ctx context.Context) (xiaozhi.Message, error) {
	m, err := p.Conn.Recv(ctx)
	p.heard(time.Now())
	return m, err
}
