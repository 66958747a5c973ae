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

// Why a socket ends.
var (
	ErrPeerClosed = errors.New("the device closed the connection")
	ErrSilent     = errors.New("the device stopped answering")
	ErrNotReading = errors.New("the device does not read")
)

// Socket is the connection of a device and the part of its Link that is independent of
// framing: timeouts, and how the link ends.
type Socket struct {
	transport.Tracer
	conn    net.Conn
	timeout time.Duration
	release func()

	writing sync.Mutex // held while writing to conn
	reason  atomic.Pointer[error]
	once    sync.Once
}

// kernelBuffer bounds the kernel's memory for a device that floods or does not read.
const kernelBuffer = 64 << 10

// NewSocket returns a Socket on conn, which it owns from then on. Timeout bounds one
// Send. Release is called when the socket has ended.
func NewSocket(conn net.Conn, timeout time.Duration, release func()) *Socket {
	if tcp := TCP(conn); tcp != nil { // errors are ignored: it is an optimization
		tcp.SetReadBuffer(kernelBuffer)
		tcp.SetWriteBuffer(kernelBuffer)
	}
	return &Socket{conn: conn, timeout: timeout, release: release}
}

// InterruptOn makes Read end when ctx ends, for any number of reads until done is
// called.
func (s *Socket) InterruptOn(ctx context.Context) (done func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed conn, whose I/O has ended
		close(fired)
	})
	return func() {
		if !stop() {
			<-fired
		}
	}
}

// Read waits for bytes until a time, if it is not zero, and until ctx ends. After
// os.ErrDeadlineExceeded or ctx's error the socket stays usable; after any other error
// it is broken.
func (s *Socket) Read(ctx context.Context, p []byte, until time.Time) (int, error) {
	s.conn.SetReadDeadline(until)
	if err := ctx.Err(); err != nil {
		return 0, err // InterruptOn's deadline may just have been overwritten
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

// cleanError returns err without the ports of this connection.
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

// Send implements Send of a Link: it writes frame, which is the encoded m.
func (s *Socket) Send(ctx context.Context, m transport.Message, frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if reason := s.reason.Load(); reason != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, *reason)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	deadline, own := time.Now().Add(s.timeout), true
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline, own = d, false
	}
	s.Trace(transport.Out, m, "") // before the answer can be traced
	n, err := s.write(deadline, frame)
	if err == nil {
		return nil
	}
	err = s.Reason(cleanError(err))
	s.Note(fmt.Sprintf("incomplete: %d bytes were sent: %v", n, err))
	if unsent := n == 0 && !s.encrypted(); unsent {
		if own && err == ErrNotReading {
			s.End(err)
		}
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	s.End(err)
	return err
}

// encrypted reports that the connection uses TLS. The number of written bytes then does
// not tell how much was sent.
func (s *Socket) encrypted() bool {
	_, yes := s.conn.(*tls.Conn)
	return yes
}

// write writes a frame in a single write. Called with writing held.
func (s *Socket) write(deadline time.Time, frame []byte) (int, error) {
	s.conn.SetWriteDeadline(deadline) // fails only on a closed conn, where Write fails, too
	return s.conn.Write(frame)
}

// controlTimeout bounds a control frame, which delays the receiver.
const controlTimeout = time.Second

// WriteControl writes a short frame that is not part of a Message. If the device does
// not accept it in time, it has stopped reading and the socket ends.
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

// finalTimeout bounds a frame that need not arrive.
const finalTimeout = 20 * time.Millisecond

// WriteFinal tries to write a last frame. It gives up at once if that would block.
func (s *Socket) WriteFinal(frame []byte) {
	if s.reason.Load() == nil && s.writing.TryLock() {
		defer s.writing.Unlock()
		s.write(time.Now().Add(finalTimeout), frame)
	}
}

// Reason returns why the socket has ended, or err if it has not.
func (s *Socket) Reason(err error) error {
	if reason := s.reason.Load(); reason != nil {
		return *reason
	}
	return err
}

// End closes the socket. The first reason counts. A second call waits for the first.
func (s *Socket) End(reason error) {
	s.once.Do(func() {
		s.reason.Store(&reason)
		tcp := TCP(s.conn)
		if tcp != nil && (reason == ErrNotReading || reason == ErrSilent) {
			tcp.SetLinger(0) // discard unsent data
		}
		if tcp != nil {
			tcp.Close() // without the last word of TLS, which may block for seconds
		} else {
			s.conn.Close()
		}
		s.release()
	})
}

// Close implements Close of a Link.
func (s *Socket) Close() error {
	s.End(transport.ErrClosed)
	return nil
}
