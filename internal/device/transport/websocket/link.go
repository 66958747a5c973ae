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
	cfg      *Config
	identity identity // without its token
	client   bool     // it was dialled, and what is sent to it is masked

	// What follows is Recv's own.

	decoder      decoder
	buffer       [512]byte // what was read; longer pieces go through a shared one
	pending      []byte    // what of it is not decoded
	deadline     time.Time // when a silent device is asked, or given up
	pinged       bool      // it was asked, and has not answered
	pongData     []byte    // the answer to its last ping; nil if there is none
	dropped      int       // binary messages that were dropped, and not told of
	droppedBytes int64     // their bytes
	err          error     // why nothing can be received any more
}

func newLink(conn net.Conn, cfg *Config, who identity, leave func()) *link {
	who.token = ""
	return &link{Socket: inbound.NewSocket(conn, cfg.Send, leave), cfg: cfg, identity: who, decoder: decoder{limit: cfg.MaxMessage}}
}

// Info implements wire.Link.
func (l *link) Info() transport.Info {
	return transport.Info{Transport: Name, Address: l.identity.address}
}

// ClientID is what the device calls its installation; empty if it does not.
func (l *link) ClientID() string { return l.identity.client }

// ProtocolVersion is how the device frames its sound: 1, 2 or 3.
func (l *link) ProtocolVersion() int { return l.identity.version }

// Recv implements wire.Link. Sound and whatever else is binary ends here: nobody
// is woken for it.
func (l *link) Recv(ctx context.Context) (transport.Message, error) {
	defer l.InterruptOn(ctx)()
	if now := time.Now(); l.deadline.Before(now) { // nobody has listened for a while
		l.deadline, l.pinged = now.Add(l.cfg.Ping), false
	}
	for l.err == nil {
		used, e, err := l.decoder.next(l.pending)
		l.pending = l.pending[used:]
		switch {
		case err != nil:
			l.WriteFinal(l.closeFrame(ws.StatusProtocolError))
			l.err = fmt.Errorf("the device does not keep to the protocol: %w", err)
		case e.kind == text:
			l.noteDropped()
			m := transport.Message{Channel: Text, Data: e.data}
			l.Trace(transport.In, m, "")
			return m, nil
		case e.kind == tooLong:
			l.noteDropped()
			l.Note(fmt.Sprintf("dropped: %v: more than %d bytes", transport.ErrTooLong, l.cfg.MaxMessage))
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

// take takes what nobody is told of.
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

// tellNoise notes what was dropped since the last message.
func (l *link) noteDropped() {
	if l.dropped > 0 {
		l.Note(fmt.Sprintf("%d binary messages with %d bytes were dropped", l.dropped, l.droppedBytes))
		l.dropped, l.droppedBytes = 0, 0
	}
}

// pieces are what long frames are read with. They hold nothing that is not of
// the frame at hand.
var readBuffers = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// read waits for more bytes, and has them decoded or pending.
func (l *link) read(ctx context.Context) error {
	l.pending = nil
	if l.decoder.remaining <= int64(len(l.buffer)) {
		n, err := l.readOnce(ctx, l.buffer[:])
		l.pending = l.buffer[:n]
		return err
	}
	piece := readBuffers.Get().(*[8 << 10]byte)
	defer readBuffers.Put(piece)
	n, err := l.readOnce(ctx, piece[:min(l.decoder.remaining, int64(len(piece)))])
	l.decoder.takePayload(piece[:n])
	return err
}

// wait reads once. It answers a ping before, and asks a device that is silent:
// that is measured by the deadline of the read, and costs nothing else.
func (l *link) readOnce(ctx context.Context, p []byte) (int, error) {
	if l.pongData != nil { // the last one counts, however many there were
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
	l.closeWith(transport.ErrClosed)
	return nil
}

// drop ends the link, and says why.
func (l *link) closeWith(why error) {
	l.WriteFinal(l.closeFrame(ws.StatusNormalClosure))
	l.End(why)
}
