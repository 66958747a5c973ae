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

// link is a device that has dialled in, or was dialled.
type link struct {
	*inbound.Socket
	cfg    *Config
	who    identity // without its token
	client bool     // it was dialled, and what is sent to it is masked

	// What follows is Recv's own.

	decoder decoder
	buffer  [512]byte // what was read; longer pieces go through a shared one
	pending []byte    // what of it is not decoded
	due     time.Time // when a silent device is asked, or given up
	asked   bool      // it was asked, and has not answered
	owed    []byte    // the answer to its last ping; nil if there is none
	noise   int       // binary messages that were dropped, and not told of
	noisy   int64     // their bytes
	broken  error     // why nothing can be received any more
}

func newLink(conn net.Conn, cfg *Config, who identity, leave func()) *link {
	who.token = ""
	return &link{Socket: inbound.NewSocket(conn, cfg.Send, leave), cfg: cfg, who: who, decoder: decoder{limit: cfg.Message}}
}

// Info implements wire.Link.
func (l *link) Info() transport.Info {
	return transport.Info{Transport: Medium, Address: l.who.address}
}

// ClientID is what the device calls its installation; empty if it does not.
func (l *link) ClientID() string { return l.who.client }

// ProtocolVersion is how the device frames its sound: 1, 2 or 3.
func (l *link) ProtocolVersion() int { return l.who.version }

// Recv implements wire.Link. Sound and whatever else is binary ends here: nobody
// is woken for it.
func (l *link) Recv(ctx context.Context) (transport.Message, error) {
	defer l.During(ctx)()
	if now := time.Now(); l.due.Before(now) { // nobody has listened for a while
		l.due, l.asked = now.Add(l.cfg.Ping), false
	}
	for l.broken == nil {
		used, e, err := l.decoder.next(l.pending)
		l.pending = l.pending[used:]
		switch {
		case err != nil:
			l.Farewell(l.closeFrame(ws.StatusProtocolError))
			l.broken = fmt.Errorf("the device does not keep to the protocol: %w", err)
		case e.kind == text:
			l.tellNoise()
			m := transport.Message{Channel: Text, Data: e.data}
			l.Saw(transport.In, m, "")
			return m, nil
		case e.kind == tooLong:
			l.tellNoise()
			l.Note(fmt.Sprintf("dropped: %v: more than %d bytes", transport.ErrTooLong, l.cfg.Message))
			return transport.Message{}, transport.ErrTooLong
		case e.kind != nothing:
			l.take(e)
		default:
			if err := l.read(ctx); err != nil && err == ctx.Err() {
				return transport.Message{}, l.Why(err)
			} else if err != nil {
				l.broken = err
			}
		}
	}
	return transport.Message{}, l.Why(l.broken)
}

// take takes what nobody is told of.
func (l *link) take(e event) {
	switch e.kind {
	case binary:
		l.noise++
		l.noisy += e.size
	case ping:
		l.owed = append(make([]byte, 0, len(e.data)), e.data...)
	case closing:
		l.Farewell(l.closeFrame(ws.StatusNormalClosure))
		l.broken = inbound.ErrHungUp
	}
}

// tellNoise notes what was dropped since the last message.
func (l *link) tellNoise() {
	if l.noise > 0 {
		l.Note(fmt.Sprintf("%d binary messages with %d bytes were dropped", l.noise, l.noisy))
		l.noise, l.noisy = 0, 0
	}
}

// pieces are what long frames are read with. They hold nothing that is not of
// the frame at hand.
var pieces = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// read waits for more bytes, and has them decoded or pending.
func (l *link) read(ctx context.Context) error {
	l.pending = nil
	if l.decoder.left <= int64(len(l.buffer)) {
		n, err := l.wait(ctx, l.buffer[:])
		l.pending = l.buffer[:n]
		return err
	}
	piece := pieces.Get().(*[8 << 10]byte)
	defer pieces.Put(piece)
	n, err := l.wait(ctx, piece[:min(l.decoder.left, int64(len(piece)))])
	l.decoder.takePayload(piece[:n])
	return err
}

// wait reads once. It answers a ping before, and asks a device that is silent:
// that is measured by the deadline of the read, and costs nothing else.
func (l *link) wait(ctx context.Context, p []byte) (int, error) {
	if l.owed != nil { // the last one counts, however many there were
		if err := l.Reply(l.frame(ws.OpPong, l.owed)); err != nil {
			return 0, err
		}
		l.owed = nil
	}
	for {
		n, err := l.Read(ctx, p, l.due)
		switch {
		case err == nil:
			l.due, l.asked = time.Now().Add(l.cfg.Ping), false
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case l.asked:
			l.End(inbound.ErrSilent)
			return 0, inbound.ErrSilent
		}
		if err := l.Reply(l.frame(ws.OpPing, nil)); err != nil {
			return 0, err
		}
		l.due, l.asked = time.Now().Add(l.cfg.Pong), true
	}
}

// Send implements wire.Link.
func (l *link) Send(ctx context.Context, m transport.Message) error {
	op := ws.OpText
	switch m.Channel {
	case "", Text:
	case Binary:
		op = ws.OpBinary
	default:
		return fmt.Errorf("%w: a WebSocket has no channel %q", transport.ErrUnsent, m.Channel)
	}
	return l.Socket.Send(ctx, m, l.frame(op, m.Data))
}

// frame is data with its header.
func (l *link) frame(op ws.OpCode, data []byte) []byte {
	header := ws.Header{Fin: true, OpCode: op, Length: int64(len(data)), Masked: l.client}
	if l.client {
		header.Mask = ws.NewMask()
	}
	out := bytes.NewBuffer(make([]byte, 0, ws.MaxHeaderSize+len(data)))
	ws.WriteHeader(out, header) // a buffer takes all
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

// Close implements wire.Link.
func (l *link) Close() error {
	l.drop(transport.ErrClosed)
	return nil
}

// drop ends the link, and says why.
func (l *link) drop(why error) {
	l.Farewell(l.closeFrame(ws.StatusNormalClosure))
	l.End(why)
}
