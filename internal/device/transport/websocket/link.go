package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// link is the Link to a device that connected or was dialed.
type link struct {
	*inbound.Socket
	cfg      *Config
	identity identity // without the token
	client   bool     // the device was dialed, so frames to it are masked

	// The following fields belong to Recv.

	decoder      decoder
	buffer       [512]byte // small reads; larger ones use readBuffers
	pending      []byte    // bytes that are read and not decoded
	deadline     time.Time // when a silent device gets a ping, or is given up
	pinged       bool      // it got a ping and has not answered
	pongData     []byte    // payload of the pong to send; nil if none is due
	dropped      int       // binary messages since the last note
	droppedBytes int64
	err          error // why nothing can be received anymore
}

func newLink(conn net.Conn, cfg *Config, id identity, release func()) *link {
	id.token = ""
	return &link{Socket: inbound.NewSocket(conn, cfg.Send, release), cfg: cfg, identity: id, decoder: decoder{limit: cfg.MaxMessage}}
}

// Info implements transport.Link.
func (l *link) Info() transport.Info {
	return transport.Info{Transport: Name, Address: l.identity.address}
}

// ClientID returns the ID of the device's installation; empty if it sent none.
func (l *link) ClientID() string { return l.identity.client }

// ProtocolVersion returns the version of the device's audio framing: 1, 2 or 3.
func (l *link) ProtocolVersion() int { return l.identity.version }

// Recv implements transport.Link. It drops binary messages, such as audio.
func (l *link) Recv(ctx context.Context) (transport.Message, error) {
	defer l.InterruptOn(ctx)()
	if now := time.Now(); l.deadline.Before(now) { // Recv was not called for a while
		l.deadline, l.pinged = now.Add(l.cfg.Ping), false
	}
	for l.err == nil {
		used, e, err := l.decoder.next(l.pending)
		l.pending = l.pending[used:]
		switch {
		case err != nil:
			l.WriteFinal(l.closeFrame(ws.StatusProtocolError))
			l.err = fmt.Errorf("the device violates the WebSocket protocol: %w", err)
		case e.kind == text:
			l.noteDropped()
			m := transport.Message{Channel: Text, Data: e.data}
			l.Trace(transport.In, m, "")
			return m, nil
		case e.kind == tooLong:
			l.noteDropped()
			l.Note(fmt.Sprintf("dropped: %v: limit is %d bytes", transport.ErrTooLong, l.cfg.MaxMessage))
			return transport.Message{}, transport.ErrTooLong
		case e.kind != nothing:
			l.handle(e)
		default:
			if err := l.read(ctx); err != nil && err == ctx.Err() {
				return transport.Message{}, l.Reason(err)
			} else if err != nil {
				l.err = err
			}
		}
	}
	return transport.Message{}, l.Reason(l.err)
}

// handle handles an event that is not passed on.
func (l *link) handle(e event) {
	switch e.kind {
	case binary:
		l.dropped++
		l.droppedBytes += e.size
	case ping:
		l.pongData = append(make([]byte, 0, len(e.data)), e.data...)
	case closing:
		l.WriteFinal(l.closeFrame(ws.StatusNormalClosure))
		l.err = inbound.ErrPeerClosed
	}
}

// noteDropped traces how many binary messages were dropped since the last note.
func (l *link) noteDropped() {
	if l.dropped > 0 {
		l.Note(fmt.Sprintf("%d binary messages with %d bytes were dropped", l.dropped, l.droppedBytes))
		l.dropped, l.droppedBytes = 0, 0
	}
}

// readBuffers are for long frames. A buffer is used for one read only.
var readBuffers = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// read waits for more bytes. It decodes them or leaves them in pending.
func (l *link) read(ctx context.Context) error {
	l.pending = nil
	if l.decoder.remaining <= int64(len(l.buffer)) {
		n, err := l.readOnce(ctx, l.buffer[:])
		l.pending = l.buffer[:n]
		return err
	}
	buf := readBuffers.Get().(*[8 << 10]byte)
	defer readBuffers.Put(buf)
	n, err := l.readOnce(ctx, buf[:min(l.decoder.remaining, int64(len(buf)))])
	l.decoder.takePayload(buf[:n])
	return err
}

// readOnce reads once. Before that it answers a ping. It sends a ping to a silent
// device; the read deadline measures the silence, so no timer is needed.
func (l *link) readOnce(ctx context.Context, p []byte) (int, error) {
	if l.pongData != nil { // only the last ping is answered
		if err := l.WriteControl(l.frame(ws.OpPong, l.pongData)); err != nil {
			return 0, err
		}
		l.pongData = nil
	}
	for {
		n, err := l.Read(ctx, p, l.deadline)
		switch {
		case err == nil:
			l.deadline, l.pinged = time.Now().Add(l.cfg.Ping), false
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case l.pinged:
			l.End(inbound.ErrSilent)
			return 0, inbound.ErrSilent
		}
		if err := l.WriteControl(l.frame(ws.OpPing, nil)); err != nil {
			return 0, err
		}
		l.deadline, l.pinged = time.Now().Add(l.cfg.Pong), true
	}
}

// Send implements transport.Link.
func (l *link) Send(ctx context.Context, m transport.Message) error {
	op := ws.OpText
	switch m.Channel {
	case "", Text:
	case Binary:
		op = ws.OpBinary
	default:
		return fmt.Errorf("%w: unknown WebSocket channel %q", transport.ErrUnsent, m.Channel)
	}
	return l.Socket.Send(ctx, m, l.frame(op, m.Data))
}

// frame returns data with its header.
func (l *link) frame(op ws.OpCode, data []byte) []byte {
	header := ws.Header{Fin: true, OpCode: op, Length: int64(len(data)), Masked: l.client}
	if l.client {
		header.Mask = ws.NewMask()
	}
	out := bytes.NewBuffer(make([]byte, 0, ws.MaxHeaderSize+len(data)))
	ws.WriteHeader(out, header) // a buffer never fails
	begin := out.Len()
	out.Write(data)
	if l.client {
		ws.Cipher(out.Bytes()[begin:], header.Mask, 0)
	}
	return out.Bytes()
}

func (l *link) closeFrame(code ws.StatusCode) []byte {
	return l.frame(ws.OpClose, ws.NewCloseFrameBody(code, ""))
}

// Close implements transport.Link.
func (l *link) Close() error {
	l.closeWith(transport.ErrClosed)
	return nil
}

// closeWith ends the link with a reason.
func (l *link) closeWith(reason error) {
	l.WriteFinal(l.closeFrame(ws.StatusNormalClosure))
	l.End(reason)
}
