package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is a Link that carries lines over a stream of bytes, such as a socket or a
// serial port. One Message is one line.
type Stream struct {
	Tracer
	conn   Conn
	info   Info
	lines  *Lines
	out    []byte // buffer of the line being sent
	closed atomic.Bool
	close  sync.Once
}

// Conn is the byte stream of a Stream, such as a net.Conn.
type Conn interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// NewStream returns a Link on conn, which it owns from then on.
func NewStream(conn Conn, info Info, limits Limits) *Stream {
	return &Stream{conn: conn, info: info, lines: NewLines(conn, limits)}
}

// Recv implements Link.
func (s *Stream) Recv(ctx context.Context) (Message, error) {
	line, err := s.next(ctx)
	if err == nil {
		m := Message{Data: line}
		s.Trace(In, m, "")
		return m, nil
	}
	if errors.Is(err, ErrTooLong) {
		s.Note("dropped: " + err.Error())
		return Message{}, err
	}
	err = s.reason(ctx, err)
	if rest := s.lines.Rest(); len(rest) > 0 && ctx.Err() == nil {
		s.Trace(In, Message{Data: rest}, "incomplete: no line end")
	}
	return Message{}, err
}

// next returns the next line. It stops when ctx ends.
func (s *Stream) next(ctx context.Context) ([]byte, error) {
	if ctx.Done() != nil {
		defer interruptOn(ctx, s.conn.SetReadDeadline)()
	}
	return s.lines.Next()
}

// Send implements Link.
func (s *Stream) Send(ctx context.Context, m Message) error {
	if bytes.IndexByte(m.Data, '\n') >= 0 {
		return fmt.Errorf("%w: a line must not contain a line end", ErrUnsent)
	}
	if s.closed.Load() {
		return fmt.Errorf("%w: %w", ErrUnsent, ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	s.out = append(append(s.out[:0], m.Data...), '\n')
	s.conn.SetWriteDeadline(sendDeadline(ctx)) // fails only on a closed conn, where Write fails, too
	s.Trace(Out, m, "")                        // before the answer can be traced
	n, err := s.conn.Write(s.out)
	if err == nil {
		return nil
	}
	if err = s.reason(ctx, err); errors.Is(err, os.ErrDeadlineExceeded) {
		err = errNotReading
	}
	s.Note(fmt.Sprintf("incomplete: %d bytes were sent: %v", n, err))
	if n == 0 {
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	s.Close()
	return err
}

// maxSend bounds the time to send a line. A peer that does not accept it by then has
// stopped reading.
const maxSend = 5 * time.Second

var errNotReading = errors.New("the device does not read")

// sendDeadline returns the deadline of a Send that begins now. It ignores cancellation
// of ctx: watching for it is expensive, and a line is short.
func sendDeadline(ctx context.Context) time.Time {
	limit := time.Now().Add(maxSend)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		return d
	}
	return limit
}

// reason returns why reading or writing failed: the link was closed, ctx ended, or err.
func (s *Stream) reason(ctx context.Context, err error) error {
	switch {
	case s.closed.Load():
		return ErrClosed
	case ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
		return errors.New("the device closed the connection")
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err // without the ports of this connection
	}
	return err
}

// Close implements Link. A second call waits for the first.
func (s *Stream) Close() (err error) {
	s.closed.Store(true)
	s.close.Do(func() { err = s.conn.Close() })
	return err
}

// Info implements Link.
func (s *Stream) Info() Info { return s.info }

// interruptOn ends blocked I/O with os.ErrDeadlineExceeded when ctx ends. Done stops
// that and clears the deadline.
func interruptOn(ctx context.Context, setDeadline func(time.Time) error) (done func()) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		setDeadline(time.Unix(1, 0)) // fails only on a closed conn, whose I/O has ended
		close(fired)
	})
	return func() {
		if !stop() {
			<-fired
			setDeadline(time.Time{})
		}
	}
}
