package ws

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/wire"
)

// link is a device that has dialled in.
type link struct {
	wire.Tap
	conn  net.Conn
	cfg   *Config
	leave func()   // tells that the link has ended
	who   identity // without its token

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

	writing sync.Mutex // held by whoever writes to conn
	why     atomic.Pointer[error]
	once    sync.Once
}

func newLink(conn net.Conn, cfg *Config, who identity, leave func()) *link {
	who.token = ""
	return &link{conn: conn, cfg: cfg, leave: leave, who: who, decoder: decoder{limit: cfg.Message}}
}

// Info implements wire.Link.
func (l *link) Info() wire.Info { return wire.Info{Medium: Medium, Address: l.who.address} }

// ClientID is what the device calls its installation; empty if it does not.
func (l *link) ClientID() string { return l.who.client }

// ProtocolVersion is how the device frames its sound: 1, 2 or 3.
func (l *link) ProtocolVersion() int { return l.who.version }

// Why a link ends by itself.
var (
	errHungUp = errors.New("the device closed the connection")
	errSilent = errors.New("the device does not answer any more")
	errStuck  = errors.New("the device does not read")
)

// Recv implements wire.Link. Sound and whatever else is binary ends here: nobody
// is woken for it.
func (l *link) Recv(ctx context.Context) (wire.Message, error) {
	if ctx.Done() != nil {
		defer during(ctx, l.conn.SetReadDeadline)()
	}
	if now := time.Now(); l.due.Before(now) { // nobody has listened for a while
		l.due, l.asked = now.Add(l.cfg.Ping), false
	}
	for l.broken == nil {
		used, e, err := l.decoder.next(l.pending)
		l.pending = l.pending[used:]
		if err != nil {
			l.farewell(ws.StatusProtocolError)
			l.broken = fmt.Errorf("the device does not keep to the protocol: %w", err)
			break
		}
		switch e.kind {
		case nothing:
			if err := l.read(ctx); err != nil {
				if err := l.failed(ctx, err); l.broken == nil {
					return wire.Message{}, err
				}
			}
		case text:
			l.tellNoise()
			m := wire.Message{Channel: Text, Data: e.data}
			l.Saw(wire.In, m, "")
			return m, nil
		case tooLong:
			l.tellNoise()
			l.Note(fmt.Sprintf("dropped: %v: more than %d bytes", wire.ErrTooLong, l.cfg.Message))
			return wire.Message{}, wire.ErrTooLong
		case binary:
			l.noise++
			l.noisy += e.size
		case ping:
			l.owed = append(make([]byte, 0, len(e.data)), e.data...)
		case closing:
			l.farewell(ws.StatusNormalClosure)
			l.broken = errHungUp
		}
	}
	return wire.Message{}, l.ended(l.broken)
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
		if err := l.control(ws.OpPong, l.owed); err != nil {
			return 0, err
		}
		l.owed = nil
	}
	for {
		l.conn.SetReadDeadline(l.due) // fails only on a closed conn, and then Read does
		if err := ctx.Err(); err != nil {
			return 0, err // its end may have been overwritten just now
		}
		n, err := l.conn.Read(p)
		switch {
		case n > 0:
			l.due, l.asked = time.Now().Add(l.cfg.Ping), false
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case l.asked:
			return 0, errSilent
		}
		if err := l.control(ws.OpPing, nil); err != nil {
			return 0, err
		}
		l.due, l.asked = time.Now().Add(l.cfg.Pong), true
	}
}

// failed says why a read failed. Unless ctx has ended, the link is broken.
func (l *link) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && l.why.Load() == nil {
		return err
	}
	l.broken = plain(err)
	return l.broken
}

// plain is err without the ports of this one connection.
func plain(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
		return errHungUp
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errStuck
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// ended is why the link has ended: what was decided here, else err.
func (l *link) ended(err error) error {
	if why := l.why.Load(); why != nil {
		return *why
	}
	return err
}

// Send implements wire.Link.
func (l *link) Send(ctx context.Context, m wire.Message) error {
	op := ws.OpText
	switch m.Channel {
	case "", Text:
	case Binary:
		op = ws.OpBinary
	default:
		return fmt.Errorf("%w: a WebSocket has no channel %q", wire.ErrUnsent, m.Channel)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if why := l.why.Load(); why != nil {
		return fmt.Errorf("%w: %w", wire.ErrUnsent, *why)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrUnsent, err)
	}
	limit := time.Now().Add(l.cfg.Send)
	own := true
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit, own = d, false
	}
	l.Saw(wire.Out, m, "") // before the answer can be seen
	n, err := l.write(limit, op, m.Data)
	if err == nil {
		return nil
	}
	err = l.ended(plain(err))
	l.Note(fmt.Sprintf("of this, %d bytes were sent: %v", n, err))
	if unsent := n == 0 && !l.ciphered(); unsent {
		if own && err == errStuck {
			l.end(err)
		}
		return fmt.Errorf("%w: %w", wire.ErrUnsent, err)
	}
	l.end(err)
	return err
}

// ciphered tells that how much was written says nothing about how much was sent.
func (l *link) ciphered() bool {
	_, yes := l.conn.(*tls.Conn)
	return yes
}

// write writes one frame, in a single write. It is called with writing held.
func (l *link) write(limit time.Time, op ws.OpCode, data []byte) (int, error) {
	frame := bytes.NewBuffer(make([]byte, 0, ws.MaxHeaderSize+len(data)))
	ws.WriteHeader(frame, ws.Header{Fin: true, OpCode: op, Length: int64(len(data))}) // a buffer takes all
	frame.Write(data)
	l.conn.SetWriteDeadline(limit) // fails only on a closed conn, and then Write does
	return l.conn.Write(frame.Bytes())
}

// controlTime bounds the write of a control frame, which is a few bytes.
const controlTime = time.Second

// control sends a control frame. A device that does not take it does not read.
func (l *link) control(op ws.OpCode, data []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.write(time.Now().Add(controlTime), op, data)
	if err != nil {
		l.end(plain(err))
	}
	return err
}

// farewell sends a close frame, if that is done at once.
func (l *link) farewell(code ws.StatusCode) {
	if l.writing.TryLock() {
		defer l.writing.Unlock()
		l.write(time.Now().Add(farewellTime), ws.OpClose, ws.NewCloseFrameBody(code, ""))
	}
}

const farewellTime = 20 * time.Millisecond

// Close implements wire.Link.
func (l *link) Close() error {
	l.drop(wire.ErrClosed)
	return nil
}

// drop ends the link in peace, and says why.
func (l *link) drop(why error) {
	if l.why.Load() == nil {
		l.farewell(ws.StatusNormalClosure)
	}
	l.end(why)
}

// end ends the link. The first reason counts, and whoever comes second waits.
func (l *link) end(why error) {
	l.once.Do(func() {
		l.why.Store(&why)
		if tcp, ok := l.conn.(*net.TCPConn); ok && (why == errStuck || why == errSilent) {
			tcp.SetLinger(0) // the kernel need not try to send what is left
		}
		l.conn.Close()
		l.leave()
	})
}

// during makes a read that blocks end when ctx does. The function that it returns
// ends the watch, and waits until the deadline is set if it is.
func during(ctx context.Context, setDeadline func(time.Time) error) (done func()) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		setDeadline(time.Unix(1, 0))
		close(fired)
	})
	return func() {
		if !stop() {
			<-fired
		}
	}
}
