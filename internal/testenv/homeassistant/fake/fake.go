// Package fake is a Home Assistant for tests of what a real one rarely does: it repeats IDs,
// sends what is broken or too long, floods, is silent, and leaves at the wrong moment.
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/gobwas/ws"
)

// Token is the access token that a Home accepts.
const Token = "fake.token-0123456789"

// Command is a message of the client after the login. Fields has all of it.
type Command struct {
	ID     int64
	Type   string
	Fields map[string]any
}

// Home is a Home Assistant that a function plays.
type Home struct {
	// Handle answers a command. It is called from one goroutine for each connection, in the
	// order of the commands.
	Handle func(c *Conn, cmd Command)
	// Greet replaces the first message, and Answer the answer to a login, if they are not nil.
	Greet  func(c *Conn)
	Answer func(c *Conn, token string)

	mu       sync.Mutex
	down     bool
	attempts int
	tokens   []string
	commands []Command
	conns    map[*Conn]bool
}

// Conn is a connection of a client.
type Conn struct {
	net.Conn
	// Number counts the connections of a Home from 1.
	Number int

	frames  chan ws.Frame // that were read and not handled
	writing sync.Mutex
}

// New returns a Home that answers each command with success and null.
func New() *Home {
	return &Home{
		Handle: func(c *Conn, cmd Command) { c.Result(cmd.ID, nil) },
		conns:  make(map[*Conn]bool),
	}
}

// Listen serves the Home on a port of the loopback interface until the test ends, and returns
// its URL.
func (h *Home) Listen(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { h.Serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		h.SetDown(true)
		tasks.Wait()
	})
	return "http://" + listener.Addr().String()
}

// Dial connects to the Home in memory.
func (h *Home) Dial(context.Context, string, string) (net.Conn, error) {
	h.mu.Lock()
	down := h.down
	if down {
		h.attempts++
	}
	h.mu.Unlock()
	if down {
		return nil, errors.New("the fake Home Assistant is down")
	}
	near, far := net.Pipe()
	go h.Serve(far)
	return near, nil
}

// SetDown ends all connections and refuses others, or accepts them again.
func (h *Home) SetDown(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
	for c := range h.conns {
		if down {
			c.Close()
		}
	}
}

// Attempts returns how many connections were tried, Tokens the tokens that were sent, and
// Commands all commands.
func (h *Home) Attempts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attempts
}

func (h *Home) Tokens() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.tokens...)
}

func (h *Home) Commands() []Command {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Command(nil), h.commands...)
}

// Serve serves one connection until it ends.
func (h *Home) Serve(conn net.Conn) {
	defer conn.Close()
	h.mu.Lock()
	h.attempts++
	c := &Conn{Conn: conn, Number: h.attempts, frames: make(chan ws.Frame, 1024)}
	down := h.down
	h.conns[c] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.conns, c)
		h.mu.Unlock()
	}()
	if down {
		return
	}
	if _, err := ws.Upgrade(conn); err != nil {
		return
	}
	go c.receive()
	if !h.login(c) {
		return
	}
	for {
		fields, err := c.read()
		if err != nil {
			return
		}
		id, _ := fields["id"].(float64)
		kind, _ := fields["type"].(string)
		cmd := Command{ID: int64(id), Type: kind, Fields: fields}
		h.mu.Lock()
		h.commands = append(h.commands, cmd)
		h.mu.Unlock()
		switch kind {
		case "supported_features":
			c.Result(cmd.ID, nil)
		case "ping":
			c.Send(map[string]any{"id": cmd.ID, "type": "pong"})
		default:
			h.Handle(c, cmd)
		}
	}
}

// login plays the login, and reports whether the client is logged in.
func (h *Home) login(c *Conn) bool {
	if h.Greet != nil {
		h.Greet(c)
	} else {
		c.Send(map[string]any{"type": "auth_required", "ha_version": "2026.7.4"})
	}
	auth, err := c.read()
	if err != nil {
		return false
	}
	token, _ := auth["access_token"].(string)
	h.mu.Lock()
	h.tokens = append(h.tokens, token)
	h.mu.Unlock()
	switch {
	case h.Answer != nil:
		h.Answer(c, token)
	case token != Token:
		c.Send(map[string]any{"type": "auth_invalid", "message": "Invalid access token or password"})
		return false
	default:
		c.Send(map[string]any{"type": "auth_ok", "ha_version": "2026.7.4"})
	}
	return true
}

// receive reads frames, also while nobody handles them, as the buffers of a network do.
func (c *Conn) receive() {
	defer close(c.frames)
	for {
		frame, err := ws.ReadFrame(c)
		if err != nil {
			return
		}
		c.frames <- ws.UnmaskFrameInPlace(frame)
	}
}

// read returns the next text. It answers pings.
func (c *Conn) read() (fields map[string]any, err error) {
	for frame := range c.frames {
		switch frame.Header.OpCode {
		case ws.OpText:
			return fields, json.Unmarshal(frame.Payload, &fields)
		case ws.OpPing:
			c.frame(ws.NewPongFrame(frame.Payload))
		case ws.OpClose:
			return nil, io.EOF
		}
	}
	return nil, io.EOF
}

func (c *Conn) frame(f ws.Frame) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return ws.WriteFrame(c, f)
}

// Raw sends a text as it is.
func (c *Conn) Raw(text []byte) error { return c.frame(ws.NewTextFrame(text)) }

// Send sends a value.
func (c *Conn) Send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("fake: %w", err)
	}
	return c.Raw(data)
}

// Result answers a command with success.
func (c *Conn) Result(id int64, result any) error {
	return c.Send(map[string]any{"id": id, "type": "result", "success": true, "result": result})
}

// Fail answers a command with an error.
func (c *Conn) Fail(id int64, code, message string) error {
	return c.Send(map[string]any{"id": id, "type": "result", "success": false, "error": map[string]any{"code": code, "message": message}})
}

// Event sends an event of a subscription.
func (c *Conn) Event(id int64, event any) error {
	return c.Send(map[string]any{"id": id, "type": "event", "event": event})
}
