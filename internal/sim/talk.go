package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// talk is one conversation of one toy.
type talk struct {
	conn   xiaozhi.Conn
	toy    *Toy
	beside sync.WaitGroup // what goes on beside listening
	heard  atomic.Int64   // when something last came
	left   chan struct{}  // closed if the toy takes the connection for over, while it is open

	requests int
	calls    int

	mu   sync.Mutex // held while it speaks
	held []byte     // an answer that waits for another

	inbox sync.Mutex
	queue [][]byte // what was heard and is not answered
	busy  bool     // somebody answers
	done  bool     // nobody will any more
}

// Talk has the toy talk on a connection until that ends or ctx does; first tells
// that it says hello first, as on a WebSocket. It closes the connection, and
// returns nil if the peer ended it.
func (t *Toy) Talk(ctx context.Context, conn xiaozhi.Conn, first bool) error {
	return t.newTalk(conn).run(ctx, first)
}

func (t *Toy) newTalk(conn xiaozhi.Conn) *talk {
	c := &talk{conn: conn, toy: t, left: make(chan struct{})}
	c.heard.Store(time.Now().UnixNano())
	return c
}

func (c *talk) run(ctx context.Context, first bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.beside.Wait()
	defer c.conn.Close()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	if first || c.toy.behaviour.hello != nil {
		if err := c.begin(ctx); err != nil {
			return err
		}
	}
	if c.toy.behaviour.beside != nil {
		c.beside.Go(func() { c.toy.behaviour.beside(ctx, c) })
	}
	for {
		m, err := c.conn.Recv(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		c.heard.Store(time.Now().UnixNano())
		if m.Binary {
			continue
		}
		if err := c.put(ctx, m.Data); err != nil {
			return err
		}
	}
}

// waiting is how many messages are kept while a tool runs.
const waiting = 64

var errFlooded = errors.New("more messages came than a toy has memory for")

// put has a message answered when those before it are. The toy reads on while a
// tool runs, as firmware does; while nothing is to do, there is nobody to do it.
func (c *talk) put(ctx context.Context, message []byte) error {
	c.inbox.Lock()
	defer c.inbox.Unlock()
	if len(c.queue) == waiting {
		return errFlooded
	}
	if c.queue = append(c.queue, message); !c.busy && !c.done {
		c.busy = true
		c.beside.Go(func() { c.work(ctx) })
	}
	return nil
}

// next is the next message to answer; nil if there is none.
func (c *talk) next() []byte {
	c.inbox.Lock()
	defer c.inbox.Unlock()
	if len(c.queue) == 0 {
		c.queue, c.busy = nil, false
		return nil
	}
	message := c.queue[0]
	c.queue = c.queue[1:]
	return message
}

// work answers one message after the other.
func (c *talk) work(ctx context.Context) {
	for message := c.next(); message != nil; message = c.next() {
		if err := c.hear(ctx, message); err != nil {
			c.inbox.Lock()
			c.done = true
			c.inbox.Unlock()
			c.conn.Close()
			return
		}
	}
}

// leave has the toy take the connection for over. It stays open.
func (c *talk) leave() {
	c.inbox.Lock()
	defer c.inbox.Unlock()
	select {
	case <-c.left:
	default:
		close(c.left)
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
