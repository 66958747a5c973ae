package mcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// messageConn is a conn over a link of messages.
type messageConn struct {
	session *session
	link    transport.Link
	sending chan struct{} // holds one element while a goroutine sends
	pending jsonrpc.Pending[string, message]
}

func newMessageConn(s *session) *messageConn {
	return &messageConn{session: s, link: s.link, sending: make(chan struct{}, 1)}
}

// send implements conn. It waits for messages that are being sent.
func (c *messageConn) send(ctx context.Context, data []byte) error {
	select {
	case c.sending <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", transport.ErrUnsent, ctx.Err())
	}
	defer func() { <-c.sending }()
	return c.link.Send(ctx, transport.Message{Data: data})
}

// exchange implements conn. During the greeting, it reads the link itself.
func (c *messageConn) exchange(ctx context.Context, r request) (message, error) {
	waiting := c.pending.Add(r.id)
	defer waiting.Forget()
	if err := c.send(ctx, r.body); err != nil {
		return message{}, &requestError{sent: !errors.Is(err, transport.ErrUnsent), err: err}
	}
	for !c.session.greeted && !waiting.Resolved() && ctx.Err() == nil {
		if err := c.read(ctx); err != nil && ctx.Err() == nil {
			return message{}, &requestError{sent: true, err: err}
		}
	}
	answer, err := waiting.Wait(ctx, func() { waiting.Forget() })
	if errors.Is(err, jsonrpc.ErrNoAnswer) {
		return message{}, &requestError{sent: true, silent: true, err: fmt.Errorf("%w to %s", err, r.method)}
	}
	return answer, err
}

// mustCancel implements conn.
func (c *messageConn) mustCancel() bool { return true }

// connPerRequest implements conn.
func (c *messageConn) connPerRequest() bool { return false }

// end implements conn: closing the link is enough.
func (c *messageConn) end(context.Context) {}

// run implements conn.
func (c *messageConn) run(ctx context.Context) error {
	for {
		err := c.read(ctx)
		if err == nil {
			continue
		}
		c.pending.FailAll(&requestError{sent: true, err: err})
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}

// read reads and handles one message.
func (c *messageConn) read(ctx context.Context) error {
	m, err := c.link.Recv(ctx)
	if errors.Is(err, transport.ErrTooLong) {
		c.pending.FailAll(&requestError{sent: true, err: fmt.Errorf("the answer was dropped: %w", err)})
		return nil
	}
	if err != nil {
		return err
	}
	all := decode(m.Data)
	if len(all) == 0 {
		c.session.note("noise: not a message")
	}
	for _, m := range all {
		if !m.isAnswer() || !c.deliver(m) {
			c.session.receive(ctx, m)
		}
	}
	return nil
}

// deliver gives an answer to its request, and reports whether one was waiting. An error
// without an id says that the device could not parse a message: if only one request
// waits, it is that one.
func (c *messageConn) deliver(m message) bool {
	if only, ok := c.pending.Only(); ok && m.id == "" && m.Error != nil {
		return c.pending.Fail(only, &requestError{sent: true, err: fmt.Errorf("it could not parse a message, probably this one: %w", m.Error)})
	}
	return c.pending.Answer(m.id, m)
}
