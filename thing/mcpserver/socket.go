package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

const (
	// pingInterval is the time between two pings.
	pingInterval = 30 * time.Second
	// readTimeout is how long a socket may be silent.
	readTimeout = 2 * time.Minute
)

// ServeWebSocket serves MCP over WebSockets on ln until ctx ends; it then returns nil.
// It closes ln. Each WebSocket is a session, and each text message is a message of MCP.
// The path of the request does not matter.
func (d *Device) ServeWebSocket(ctx context.Context, ln net.Listener) error {
	d.offer.Do(d.offerTools)
	defer d.statistics.serving(&d.statistics.webSocket, ln.Addr())()
	return d.serve(ctx, ln, d.guard(d.authenticated(http.HandlerFunc(d.upgrade))))
}

// upgrade upgrades a connection to a WebSocket, and serves it until it ends.
func (d *Device) upgrade(w http.ResponseWriter, r *http.Request) {
	if !d.http.Admit() {
		http.Error(w, d.http.TooManySessions(), http.StatusServiceUnavailable)
		return
	}
	conn, buffered, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return // ws has answered
	}
	s := &socket{conn: conn, in: buffered, limit: mcphttp.MaxBody, bucket: d.bucket, deadlines: d.http.Deadlines}
	session, err := d.server.Connect(r.Context(), s, nil)
	if err != nil {
		s.Close()
		return
	}
	defer context.AfterFunc(r.Context(), func() { s.Close() })()
	stop := make(chan struct{})
	defer close(stop)
	go s.pings(stop)
	session.Wait() // how it ends does not matter
}

// socket is an MCP connection over a WebSocket. It implements mcp.Transport and
// mcp.Connection.
type socket struct {
	conn      net.Conn
	in        io.Reader
	limit     int // of a message
	bucket    *bucket
	deadlines mcphttp.Deadlines

	mu sync.Mutex // held while a frame is written
}

// Connect returns the socket.
func (s *socket) Connect(context.Context) (mcp.Connection, error) { return s, nil }

// SessionID is empty: the socket is the session.
func (s *socket) SessionID() string { return "" }

// Close closes the socket, which ends all reads and writes.
func (s *socket) Close() error { return s.conn.Close() }

// Read returns the next message. An invalid message is answered with an error.
func (s *socket) Read(context.Context) (jsonrpc.Message, error) {
	for {
		data, err := s.next()
		if err != nil {
			return nil, err
		}
		message, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			err = s.refuse(jsonrpc.ID{}, jsonrpc.CodeParseError, "invalid JSON-RPC message")
		} else if wait := s.wait(message); wait > 0 {
			err = s.refuse(message.(*jsonrpc.Request).ID, limitExceeded, tooFast(wait))
		} else {
			return message, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// limitExceeded is the error code for requests beyond the rate limit.
const limitExceeded = -32000

// wait returns how long a message must wait. Only requests are limited.
func (s *socket) wait(message jsonrpc.Message) time.Duration {
	if request, ok := message.(*jsonrpc.Request); ok && request.IsCall() && s.bucket != nil {
		return s.bucket.take()
	}
	return 0
}

// refuse answers a request with an error.
func (s *socket) refuse(id jsonrpc.ID, code int64, text string) error {
	answer := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, code, text)
	if id.IsValid() {
		var err error
		answer, err = jsonrpc.EncodeMessage(&jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: code, Message: text}})
		if err != nil {
			return err
		}
	}
	return s.write(ws.NewTextFrame(answer))
}

// next returns the next text message. A binary message closes the socket, and so does
// a text that is too long.
func (s *socket) next() ([]byte, error) {
	var data []byte
	state := ws.StateServerSide
	for {
		s.conn.SetReadDeadline(time.Now().Add(readTimeout)) // if it fails, reading does
		h, err := ws.ReadHeader(s.in)
		if err == nil {
			err = ws.CheckHeader(h, state)
		}
		if err != nil {
			return nil, err
		}
		if h.OpCode == ws.OpBinary {
			return nil, s.end(ws.StatusUnsupportedData, "text messages only")
		}
		if h.Length > int64(s.limit-len(data)) {
			return nil, s.end(ws.StatusMessageTooBig, fmt.Sprintf("message too long: limit is %d bytes", s.limit))
		}
		s.conn.SetReadDeadline(time.Now().Add(s.deadlines.Request))
		var payload bytes.Buffer // grows with the data: the header may lie
		if _, err := io.CopyN(&payload, s.in, h.Length); err != nil {
			return nil, err
		}
		ws.Cipher(payload.Bytes(), h.Mask, 0)
		if h.OpCode.IsControl() {
			if err := s.control(h.OpCode, payload.Bytes()); err != nil {
				return nil, err
			}
			continue
		}
		data = append(data, payload.Bytes()...)
		if h.Fin {
			return data, nil
		}
		state = state.Set(ws.StateFragmented)
	}
}

// control answers ping and close frames.
func (s *socket) control(code ws.OpCode, payload []byte) error {
	switch code {
	case ws.OpPing:
		return s.write(ws.NewPongFrame(payload))
	case ws.OpClose:
		s.write(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))) // the peer may be gone
		return io.EOF
	}
	return nil
}

// end sends the reason and returns it as an error.
func (s *socket) end(code ws.StatusCode, reason string) error {
	s.write(ws.NewCloseFrame(ws.NewCloseFrameBody(code, reason))) // the peer may be gone
	return errors.New(reason)
}

// Write sends a message in one frame.
func (s *socket) Write(_ context.Context, message jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return err
	}
	return s.write(ws.NewTextFrame(data))
}

func (s *socket) write(f ws.Frame) error {
	data, err := ws.CompileFrame(f)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for piece := range slices.Chunk(data, mcphttp.WriteChunk) {
		s.conn.SetWriteDeadline(time.Now().Add(s.deadlines.Response))
		if _, err := s.conn.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// pings sends pings until stop is closed.
func (s *socket) pings(stop <-chan struct{}) {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			if s.write(ws.NewPingFrame(nil)) != nil {
				s.Close()
				return
			}
		}
	}
}
