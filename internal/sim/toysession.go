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

// toySession is one connection of a toy.
type toySession struct {
	conn       xiaozhi.Conn
	toy        *Toy
	background sync.WaitGroup
	received   atomic.Int64  // when the last message arrived
	left       chan struct{} // closed if the toy abandons the open connection
	first      bool          // the toy said hello first
	greeted    atomic.Bool   // the server answered it

	requests int
	calls    int

	mu      sync.Mutex // guards sending
	delayed []byte     // an answer that is sent with the next one

	inbox sync.Mutex
	queue [][]byte // messages that are not answered yet
	busy  bool     // work is running
	done  bool     // nothing is answered anymore
}

// ServeConn serves a connection until it or ctx ends, and closes it. If first is set, the toy
// says hello first, as on a WebSocket. It returns nil if the peer closed the connection.
func (t *Toy) ServeConn(ctx context.Context, conn xiaozhi.Conn, first bool) error {
	return t.newSession(conn).run(ctx, first)
}

func (t *Toy) newSession(conn xiaozhi.Conn) *toySession {
	c := &toySession{conn: conn, toy: t, left: make(chan struct{})}
	c.received.Store(time.Now().UnixNano())
	return c
}

func (c *toySession) run(ctx context.Context, first bool) error {
	ctx, cancel := context.WithCancel(ctx)
	c.first = first
	defer c.background.Wait()
	defer c.conn.Close()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	if first || c.toy.behavior.hello != nil {
		if err := c.begin(ctx); err != nil {
			return err
		}
	}
	if c.toy.behavior.background != nil {
		c.background.Go(func() { c.toy.behavior.background(ctx, c) })
	}
	for {
		m, err := c.conn.Recv(ctx)
		if err != nil {
			return sessionError(ctx, err)
		}
		c.received.Store(time.Now().UnixNano())
		if m.Binary {
			continue
		}
		if err := c.put(ctx, m.Data); err != nil {
			return err
		}
	}
}

// maxQueue is how many messages are kept while a tool runs.
const maxQueue = 64

var errFlooded = errors.New("too many messages for the memory of a toy")

// put queues a message. The toy keeps reading while a tool runs, as firmware does. An idle
// session needs no second goroutine.
func (c *toySession) put(ctx context.Context, message []byte) error {
	c.inbox.Lock()
	defer c.inbox.Unlock()
	if len(c.queue) == maxQueue {
		return errFlooded
	}
	if c.queue = append(c.queue, message); !c.busy && !c.done {
		c.busy = true
		c.background.Go(func() { c.work(ctx) })
	}
	return nil
}

// next returns the next message, or nil.
func (c *toySession) next() []byte {
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

// work answers the queued messages in order.
func (c *toySession) work(ctx context.Context) {
	for message := c.next(); message != nil; message = c.next() {
		if err := c.handle(ctx, message); err != nil {
			c.inbox.Lock()
			c.done = true
			c.inbox.Unlock()
			c.conn.Close()
			return
		}
	}
}

// leave makes the toy abandon the connection, which stays open.
func (c *toySession) leave() {
	c.inbox.Lock()
	defer c.inbox.Unlock()
	select {
	case <-c.left:
	default:
		close(c.left)
	}
}

// begin sends hello.
func (c *toySession) begin(ctx context.Context) error {
	if c.toy.behavior.hello != nil {
		return c.toy.behavior.hello(ctx, c)
	}
	return c.send(ctx, c.toy.Hello("websocket"))
}

// handle answers a message.
func (c *toySession) handle(ctx context.Context, message []byte) error {
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
	if c.toy.behavior.message != nil {
		return c.toy.behavior.message(ctx, c, req, message)
	}
	return c.answer(ctx, req, message)
}

// answer answers a message; the behavior may change the answer.
func (c *toySession) answer(ctx context.Context, req toyRequest, message []byte) error {
	answer := c.toy.Answer(ctx, message)
	if answer == nil {
		return nil
	}
	if c.toy.behavior.answer != nil {
		return c.toy.behavior.answer(ctx, c, req, answer)
	}
	return c.send(ctx, answer)
}

// send sends texts unchanged.
func (c *toySession) send(ctx context.Context, texts ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range texts {
		if err := c.conn.Send(ctx, xiaozhi.Message{Data: text}); err != nil {
			return err
		}
	}
	return nil
}

// sendAudio sends an audio frame.
func (c *toySession) sendAudio(ctx context.Context, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Send(ctx, xiaozhi.Message{Binary: true, Data: data})
}

// reply returns a JSON-RPC payload in its envelope.
func (c *toySession) reply(payload string, args ...any) []byte {
	return xiaozhi.Envelope(c.toy.Session(), fmt.Appendf(nil, payload, args...))
}

// text returns an answer with a text.
func (c *toySession) text(id int, text string) []byte {
	return c.reply(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%q}],"isError":false}}`, id, text)
}

// toyRequest has the parts of a message that behaviors need.
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
	json.Unmarshal(message, &m) // an invalid message has no method
	return m.Payload
}

// sessionError returns nil for the usual ends of a session.
func sessionError(ctx context.Context, err error) error {
	if ctx.Err() != nil || isEOF(err) {
		return nil
	}
	return err
}
