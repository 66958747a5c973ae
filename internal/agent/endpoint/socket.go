package endpoint

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// socket is a WebSocket connection. One goroutine may receive; any may send.
type socket struct {
	conn   net.Conn
	reader *bufio.Reader

	mu     sync.Mutex // held while a frame is sent
	broken error      // why sending failed
}

// newSocket wraps a connection. Early has bytes received with the handshake; it may be
// nil.
func newSocket(conn net.Conn, early *bufio.Reader) *socket {
	s := &socket{conn: conn}
	var stream io.Reader = keepAlive{s}
	if early != nil {
		first := make([]byte, early.Buffered())
		io.ReadFull(early, first) // they are buffered
		stream = io.MultiReader(bytes.NewReader(first), stream)
	}
	s.reader = bufio.NewReader(stream)
	return s
}

// Idle time before a ping, and timeouts for its pong and for writes.
const (
	pingAfter    = 30 * time.Second
	pongTimeout  = 15 * time.Second
	writeTimeout = 10 * time.Second
)

// Reasons for a lost connection.
var (
	errNoPong = errors.New("no answer to a ping")
	errClosed = errors.New("closed by the endpoint")
)

// keepAlive reads from a socket. It sends a ping after a while without data, and gives up
// if there is no answer.
type keepAlive struct{ socket *socket }

func (l keepAlive) Read(p []byte) (int, error) {
	for pinged, wait := false, pingAfter; ; pinged, wait = true, pongTimeout {
		l.socket.conn.SetReadDeadline(time.Now().Add(wait))
		n, err := l.socket.conn.Read(p)
		switch {
		case n > 0 || !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case pinged:
			return 0, errNoPong
		}
		if err := l.socket.send(ws.OpPing, nil); err != nil {
			return 0, err
		}
	}
}

// maxMessage is the maximum size of a received message: half the limit of the agent
// server, which receives it with another id.
const maxMessage = 512 << 10

// errDropped means that a message was dropped; the next one can be received.
var errDropped = errors.New("a message was dropped")

// recv is the next message of text. It holds no more than one, and of that no more than
// it has the bytes of.
func (s *socket) recv() ([]byte, error) {
	var message bytes.Buffer
	var kind ws.OpCode // of the current message; zero if none
	var size int64
	for {
		header, err := s.header(kind != 0)
		if err != nil {
			return nil, err
		}
		if header.OpCode.IsControl() {
			if err := s.control(header); err != nil {
				return nil, err
			}
			continue
		}
		if kind == 0 {
			kind = header.OpCode
		}
		var to io.Writer = &message
		if size += min(header.Length, maxMessage+1); kind != ws.OpText || size > maxMessage {
			to = io.Discard
		}
		if _, err := io.CopyN(to, s.reader, header.Length); err != nil {
			return nil, s.readError(err)
		}
		switch {
		case !header.Fin:
			size = min(size, maxMessage+1)
		case kind != ws.OpText:
			return nil, fmt.Errorf("%w: not text", errDropped)
		case size > maxMessage:
			return nil, fmt.Errorf("%w: more than %d bytes", errDropped, maxMessage)
		default:
			return message.Bytes(), nil
		}
	}
}

// header reads the header of the next frame.
func (s *socket) header(fragmented bool) (ws.Header, error) {
	header, err := ws.ReadHeader(s.reader)
	if err != nil {
		return header, s.readError(err)
	}
	state := ws.StateClientSide
	if fragmented {
		state = state.Set(ws.StateFragmented)
	}
	if err := ws.CheckHeader(header, state); err != nil {
		s.send(ws.OpClose, ws.NewCloseFrameBody(ws.StatusProtocolError, "")) // errors do not matter here
		return header, fmt.Errorf("invalid WebSocket frame: %w", err)
	}
	return header, nil
}

// control handles a control frame.
func (s *socket) control(header ws.Header) error {
	data := make([]byte, header.Length) // bounded by CheckHeader
	if _, err := io.ReadFull(s.reader, data); err != nil {
		return s.readError(err)
	}
	switch header.OpCode {
	case ws.OpPing:
		return s.send(ws.OpPong, data)
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(data)
		s.send(ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, "")) // the other side may be gone
		return closeError(code, ferrule.Clean(reason, ferrule.MaxWord))
	}
	return nil
}

// closeError converts a close frame.
func closeError(code ws.StatusCode, reason string) error {
	text := fmt.Sprintf("code %d", code)
	if code == 0 {
		text = "no code"
	}
	if reason != "" {
		text += ": " + reason
	}
	switch code {
	case ws.StatusPolicyViolation:
		return fmt.Errorf("%w (%s)", errRefused, text)
	case ws.StatusNormalClosure:
		return fmt.Errorf("%w (%s); another program may use the same URL", errClosed, text)
	}
	return fmt.Errorf("%w (%s)", errClosed, text)
}

// readError returns why reading failed.
func (s *socket) readError(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken != nil:
		return s.broken
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w without a close frame", errClosed)
	}
	return err
}

// send sends a frame. If it fails, the connection is closed.
func (s *socket) send(op ws.OpCode, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(op, data, writeTimeout)
}

// write writes a masked frame, as a client must. It is called with mu held.
func (s *socket) write(op ws.OpCode, data []byte, limit time.Duration) error {
	var mask [4]byte
	rand.Read(mask[:])
	var frame bytes.Buffer
	ws.WriteFrame(&frame, ws.MaskFrameWith(ws.NewFrame(op, true, data), mask)) // cannot fail
	s.conn.SetWriteDeadline(time.Now().Add(limit))
	if _, err := s.conn.Write(frame.Bytes()); err != nil {
		s.conn.Close()
		s.broken = fmt.Errorf("sending failed: %w", err)
		return s.broken
	}
	return nil
}

// closeNormally sends a close frame, unless a frame is being sent, and closes.
func (s *socket) closeNormally() {
	if s.mu.TryLock() {
		s.write(ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, ""), time.Second)
		s.mu.Unlock()
	}
	s.close()
}

func (s *socket) close() { s.conn.Close() }
