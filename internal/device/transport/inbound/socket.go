package inbound

import (
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

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// Why a socket ends by itself.
var (
	ErrPeerClosed = errors.New("the device closed the connection")
	ErrSilent     = errors.New("the device does not answer any more")
	ErrNotReading = errors.New("the device does not read")
)

// Socket is the connection of a device, and the part of its Link that knows
// nothing of frames: how long things may take, and how it ends.
type Socket struct {
	transport.Tracer
	conn    net.Conn
	timeout time.Duration
	release func()

	writing sync.Mutex // held by whoever writes to conn
	reason  atomic.Pointer[error]
	once    sync.Once
}

// kernelBuffer bounds what the kernel holds for a device that floods or does not
// read.
const kernelBuffer = 64 << 10

// NewSocket makes a Socket of conn, which it then owns. Limit bounds one Send, and
// leave is called when the socket has ended.
func NewSocket(conn net.Conn, limit time.Duration, leave func()) *Socket {
	if tcp, ok := conn.(*net.TCPConn); ok { // it works without, only less well
		tcp.SetReadBuffer(kernelBuffer)
		tcp.SetWriteBuffer(kernelBuffer)
	}
	return &Socket{conn: conn, timeout: limit, release: leave}
}

// During has Read end when ctx does. It is called once for any number of reads;
// the function that it returns ends that, and waits until it is over.
func (s *Socket) InterruptOn(ctx context.Context) (done func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed conn, whose I/O ends anyway
		close(fired)
	})
	return func() {
		if !stop() {
			<-fired
		}
	}
}

// Read waits for bytes: until a time, if that is not zero, and until ctx ends. It
// returns os.ErrDeadlineExceeded and ctx's error then, and the socket stays as it
// was; after any other error it is broken.
func (s *Socket) Read(ctx context.Context, p []byte, until time.Time) (int, error) {
	s.conn.SetReadDeadline(until)
	if err := ctx.Err(); err != nil {
		return 0, err // its end may have been overwritten just now
	}
	n, err := s.conn.Read(p)
	switch {
	case n > 0 || err == nil:
		return n, nil
	case s.reason.Load() != nil:
		return 0, *s.reason.Load()
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return 0, cleanError(err)
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}
	return 0, os.ErrDeadlineExceeded
}

// plain is err without the ports of this one connection.
func cleanError(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
		return ErrPeerClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrNotReading
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// Send is the Send of a Link: it writes m, which is frame on the wire.
func (s *Socket) Send(ctx context.Context, m transport.Message, frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if why := s.reason.Load(); why != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, *why)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	limit, own := time.Now().Add(s.timeout), true
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit, own = d, false
	}
	s.Trace(transport.Out, m, "") // before the answer can be seen
	n, err := s.write(limit, frame)
	if err == nil {
		return nil
	}
	err = s.Reason(cleanError(err))
	s.Note(fmt.Sprintf("of this, %d bytes were sent: %v", n, err))
	if unsent := n == 0 && !s.encrypted(); unsent {
		if own && err == ErrNotReading {
			s.End(err)
		}
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	s.End(err)
	return err
}

// ciphered tells that how much was written says nothing about how much was sent.
func (s *Socket) encrypted() bool {
	_, yes := s.conn.(*tls.Conn)
	return yes
}

// write writes a frame, in a single write. It is called with writing held.
func (s *Socket) write(limit time.Time, frame []byte) (int, error) {
	s.conn.SetWriteDeadline(limit) // fails only on a closed conn, and then Write does
	return s.conn.Write(frame)
}

// replyTime bounds an answer that keeps whoever receives from receiving.
const controlTimeout = time.Second

// Reply writes a short frame that is none of a Message. A device that does not
// take it does not read, and the socket ends.
func (s *Socket) WriteControl(frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.write(time.Now().Add(controlTimeout), frame)
	if err == nil {
		return nil
	}
	err = s.Reason(cleanError(err))
	s.End(err)
	return err
}

// farewellTime bounds what need not arrive.
const finalTimeout = 20 * time.Millisecond

// Farewell writes a frame, if the socket has not ended and that is done at once.
func (s *Socket) WriteFinal(frame []byte) {
	if s.reason.Load() == nil && s.writing.TryLock() {
		defer s.writing.Unlock()
		s.write(time.Now().Add(finalTimeout), frame)
	}
}

// Why is why the socket has ended, or err if it has not.
func (s *Socket) Reason(err error) error {
	if why := s.reason.Load(); why != nil {
		return *why
	}
	return err
}

// End ends the socket. The first reason counts, and whoever comes second waits.
func (s *Socket) End(why error) {
	s.once.Do(func() {
		s.reason.Store(&why)
		if tcp, ok := s.conn.(*net.TCPConn); ok && (why == ErrNotReading || why == ErrSilent) {
			tcp.SetLinger(0) // the kernel need not try to send what is left
		}
		s.conn.Close()
		s.release()
	})
}

// Close is the Close of a Link.
func (s *Socket) Close() error {
	s.End(transport.ErrClosed)
	return nil
}
