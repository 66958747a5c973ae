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

// socket is a WebSocket to an endpoint. One goroutine may receive, any may send.
type socket struct {
	conn   net.Conn
	reader *bufio.Reader

	mu     sync.Mutex // held while a frame is sent
	broken error      // why nothing can be sent any more
}

// newSocket makes a socket of a connection. Early has what came with the handshake; it
// may be nil.
func newSocket(conn net.Conn, early *bufio.Reader) *socket {
	s := &socket{conn: conn}
	var stream io.Reader = listener{s}
	if early != nil {
		first := make([]byte, early.Buffered())
		io.ReadFull(early, first) // they are there
		stream = io.MultiReader(bytes.NewReader(first), stream)
	}
	s.reader = bufio.NewReader(stream)
	return s
}

// How long an endpoint may be silent before it is asked, how long it may take to answer
// that, and how long to take what it is sent.
const (
	pingAfter = 30 * time.Second
	pongTime  = 15 * time.Second
	takeTime  = 10 * time.Second
)

// Why there is no connection any more.
var (
	errSilent = errors.New("the endpoint has fallen silent")
	errHungUp = errors.New("the endpoint has hung up")
)

// listener is what comes by a socket. An endpoint that says nothing for a while is
// asked, and given up if it does not answer.
type listener struct{ socket *socket }

func (l listener) Read(p []byte) (int, error) {
	for asked, wait := false, pingAfter; ; asked, wait = true, pongTime {
		l.socket.conn.SetReadDeadline(time.Now().Add(wait))
		n, err := l.socket.conn.Read(p)
		switch {
		case n > 0 || !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case asked:
			return 0, errSilent
		}
		if err := l.socket.send(ws.OpPing, nil); err != nil {
			return 0, err
		}
	}
}

// maxMessage is the size of the longest message that is taken: half of what the front
// for agents takes, which has to take it with an id of ours.
const maxMessage = 512 << 10

// errDropped says that a message was dropped, and why; the next one can be received.
var errDropped = errors.New("a message was dropped")

// recv is the next message of text. It holds no more than one, and of that no more than
// it has the bytes of.
func (s *socket) recv() ([]byte, error) {
	var message bytes.Buffer
	var kind ws.OpCode // of the message at hand; zero if there is none
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
			return nil, s.gone(err)
		}
		switch {
		case !header.Fin:
			size = min(size, maxMessage+1)
		case kind != ws.OpText:
			return nil, fmt.Errorf("%w: it is not text", errDropped)
		case size > maxMessage:
			return nil, fmt.Errorf("%w: it has more than %d bytes", errDropped, maxMessage)
		default:
			return message.Bytes(), nil
		}
	}
}

// header is the header of the next frame.
func (s *socket) header(fragmented bool) (ws.Header, error) {
	header, err := ws.ReadHeader(s.reader)
	if err != nil {
		return header, s.gone(err)
	}
	state := ws.StateClientSide
	if fragmented {
		state = state.Set(ws.StateFragmented)
	}
	if err := ws.CheckHeader(header, state); err != nil {
		s.send(ws.OpClose, ws.NewCloseFrameBody(ws.StatusProtocolError, "")) // it is given up anyway
		return header, fmt.Errorf("the endpoint does not keep to the protocol: %w", err)
	}
	return header, nil
}

// control answers a control frame.
func (s *socket) control(header ws.Header) error {
	data := make([]byte, header.Length) // CheckHeader has bounded it
	if _, err := io.ReadFull(s.reader, data); err != nil {
		return s.gone(err)
	}
	switch header.OpCode {
	case ws.OpPing:
		return s.send(ws.OpPong, data)
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(data)
		s.send(ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, "")) // the other side may be gone
		return closed(code, ferrule.Clean(reason, ferrule.MaxWord))
	}
	return nil
}

// closed is what it means that the other side has closed.
func closed(code ws.StatusCode, reason string) error {
	said := fmt.Sprintf("code %d", code)
	if code == 0 {
		said = "without a code"
	}
	if reason != "" {
		said += ": " + reason
	}
	switch code {
	case ws.StatusPolicyViolation:
		return fmt.Errorf("%w (%s)", errRefused, said)
	case ws.StatusNormalClosure:
		return fmt.Errorf("%w (%s): does another program use the same URL?", errHungUp, said)
	}
	return fmt.Errorf("%w (%s)", errHungUp, said)
}

// gone is why nothing more comes.
func (s *socket) gone(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken != nil:
		return s.broken
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w without a word", errHungUp)
	}
	return err
}

// send sends a frame. If that fails, the connection is over.
func (s *socket) send(op ws.OpCode, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(op, data, takeTime)
}

// write writes a frame, masked, as one who has dialled must. It is called with mu held.
func (s *socket) write(op ws.OpCode, data []byte, limit time.Duration) error {
	var mask [4]byte
	rand.Read(mask[:])
	var frame bytes.Buffer
	ws.WriteFrame(&frame, ws.MaskFrameWith(ws.NewFrame(op, true, data), mask)) // a buffer takes all
	s.conn.SetWriteDeadline(time.Now().Add(limit))
	if _, err := s.conn.Write(frame.Bytes()); err != nil {
		s.conn.Close()
		s.broken = fmt.Errorf("the endpoint takes nothing: %w", err)
		return s.broken
	}
	return nil
}

// leave says that we go, unless something is just being sent, and closes.
func (s *socket) leave() {
	if s.mu.TryLock() {
		s.write(ws.OpClose, ws.NewCloseFrameBody(ws.StatusNormalClosure, ""), time.Second)
		s.mu.Unlock()
	}
	s.close()
}

func (s *socket) close() { s.conn.Close() }
