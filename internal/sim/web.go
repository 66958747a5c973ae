package sim

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// WebConfig configures a Web.
type WebConfig struct {
	// Addr is where the board listens.
	Addr string
	// Token is the bearer token that requests need; "" for none.
	Token string
	// Rate is how many POST requests per second are answered; zero for no limit.
	Rate int
	// Wait is how long the board waits for a client that sends nothing, or does not close its
	// connection. Zero means five seconds, as on an ESP32.
	Wait time.Duration
}

// Web is a simulated board that serves MCP over HTTP as mcpd does on an ESP32: one connection
// at a time, which is closed after the response, and one session, which the next client takes
// over.
//
//	accept ─▶ read the request ─▶ respond ─▶ wait until the client closes ─▶ accept
//	                               └─▶ keep a stream open beside
type Web struct {
	// Board has the pins and tools.
	Board *Board

	cfg WebConfig
	ln  net.Listener

	mu      sync.Mutex
	session string   // "" before initialize, and after a restart
	current net.Conn // being served
	streams []net.Conn
	event   int // number of the last event
	silent  int // connections without a request
	posts   []time.Time
}

// The properties of the original.
const (
	webWait      = 5 * time.Second
	webStreams   = 4
	webStream    = 5 * time.Minute // how long a stream lasts
	webKeepAlive = 30 * time.Second
	webVersion   = "2025-11-25" // whatever the client asks for
)

// ListenWeb opens the port of a board. Clients wait until Run.
func ListenWeb(cfg WebConfig) (*Web, error) {
	if cfg.Wait == 0 {
		cfg.Wait = webWait
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return &Web{Board: NewBoard(), cfg: cfg, ln: ln}, nil
}

// URL returns the URL of MCP.
func (w *Web) URL() string { return "http://" + w.ln.Addr().String() + "/mcp" }

// Run serves one connection after the other until ctx ends; it then returns nil.
func (w *Web) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer w.EndStreams()
	stop := context.AfterFunc(ctx, func() { w.ln.Close() })
	defer stop()
	for {
		conn, err := w.ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accepting: %w", err)
		}
		w.serve(ctx, conn, &wg)
	}
}

// Restart restarts the board: its session and its connections are gone, and its outputs low.
func (w *Web) Restart() {
	w.mu.Lock()
	w.session = ""
	if w.current != nil {
		w.current.Close()
	}
	w.mu.Unlock()
	w.EndStreams()
	w.Board.Reset()
}

// EndStreams closes the streams, and returns how many there were.
func (w *Web) EndStreams() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.streams)
	for _, conn := range w.streams {
		conn.Close()
	}
	w.streams = nil
	return n
}

// Notify sends a message in every stream.
func (w *Web) Notify(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.event++
	for _, conn := range w.streams {
		fmt.Fprintf(conn, "id: %d\nevent: message\ndata: %s\n\n", w.event, message)
	}
}

// Silent returns how many connections sent no request in time. Each blocked the board.
func (w *Web) Silent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent
}

// serve serves one connection. Others wait until it is closed.
func (w *Web) serve(ctx context.Context, conn net.Conn, wg *sync.WaitGroup) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	w.mu.Lock()
	w.current = conn
	w.mu.Unlock()
	conn.SetReadDeadline(time.Now().Add(w.cfg.Wait))
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		w.mu.Lock()
		w.silent++
		w.mu.Unlock()
		conn.Close()
		return
	}
	var body []byte
	if r.TransferEncoding == nil { // it cannot read chunks
		body, _ = io.ReadAll(r.Body) // the rest is missing
	}
	out := w.respond(ctx, r, body)
	if out.stream {
		w.mu.Lock()
		w.streams = append(w.streams, conn)
		w.mu.Unlock()
	}
	io.WriteString(conn, out.String()) // an error ends the wait below
	conn.SetReadDeadline(time.Now().Add(w.cfg.Wait))
	_, err = io.Copy(io.Discard, conn) // until the client closes, or the time is up
	if out.stream && errors.Is(err, os.ErrDeadlineExceeded) {
		wg.Go(func() { w.keep(ctx, conn) })
		return
	}
	w.drop(conn)
}

// keep keeps a stream open beside the connections that follow.
func (w *Web) keep(ctx context.Context, conn net.Conn) {
	defer w.drop(conn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	for end := time.Now().Add(webStream); time.Now().Before(end); {
		conn.SetReadDeadline(time.Now().Add(webKeepAlive))
		if _, err := io.Copy(io.Discard, conn); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		w.mu.Lock()
		_, err := io.WriteString(conn, ": keepalive\n\n")
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// drop closes a connection.
func (w *Web) drop(conn net.Conn) {
	conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = slices.DeleteFunc(w.streams, func(c net.Conn) bool { return c == conn })
}

// webResponse is a response.
type webResponse struct {
	status  int
	header  []string
	body    string
	stream  bool
	session string
}

func (r webResponse) String() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", r.status, http.StatusText(r.status))
	for _, line := range r.header {
		b.WriteString(line + "\r\n")
	}
	if r.session != "" {
		b.WriteString("Mcp-Session-Id: " + r.session + "\r\n")
	}
	if !r.stream {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	b.WriteString("Connection: close\r\n\r\n" + r.body)
	return b.String()
}

const jsonType = "Content-Type: application/json"

// webError returns an HTTP response with a JSON-RPC error.
func webError(status, code int, message string) webResponse {
	return webResponse{status: status, header: []string{jsonType}, body: webFailure("null", code, message)}
}

// respond returns the response to a request.
func (w *Web) respond(ctx context.Context, r *http.Request, body []byte) webResponse {
	if r.URL.Path != "/mcp" {
		return webResponse{status: http.StatusNotFound, header: []string{"Content-Type: text/plain"}, body: "Not found: " + r.URL.Path}
	}
	if w.cfg.Token != "" && r.Header.Get("Authorization") != "Bearer "+w.cfg.Token && r.Method != http.MethodOptions {
		out := webError(http.StatusUnauthorized, -32000, "Unauthorized")
		out.header = append(out.header, `WWW-Authenticate: Bearer realm="mcpd"`)
		return out
	}
	w.mu.Lock()
	session := w.session
	w.mu.Unlock()
	claimed := r.Header.Get("Mcp-Session-Id")
	switch r.Method {
	case http.MethodPost:
		return w.post(ctx, claimed, session, body)
	case http.MethodGet:
		return w.openStream(session)
	case http.MethodDelete:
		if claimed != session {
			return webError(http.StatusNotFound, -32600, "Invalid session")
		}
		w.mu.Lock()
		w.session = ""
		w.mu.Unlock()
		return webResponse{status: http.StatusOK, header: []string{jsonType}, body: "{}"}
	case http.MethodOptions:
		return webResponse{status: http.StatusNoContent, header: []string{"Access-Control-Allow-Origin: *"}}
	}
	return webError(http.StatusMethodNotAllowed, -32600, "Method not allowed")
}

// openStream answers a GET request. Its first event is one of an older transport.
func (w *Web) openStream(session string) webResponse {
	w.mu.Lock()
	open := len(w.streams)
	w.mu.Unlock()
	switch {
	case session == "":
		return webError(http.StatusBadRequest, -32600, "Not initialized")
	case open >= webStreams:
		return webError(http.StatusServiceUnavailable, -32000, "Too many streams")
	}
	return webResponse{
		status: http.StatusOK, header: []string{"Content-Type: text/event-stream"}, session: session,
		body: "event: endpoint\ndata: /mcp\n\n", stream: true,
	}
}

// post answers a POST request. A request without a session is always accepted, and after a
// restart one with any session.
func (w *Web) post(ctx context.Context, claimed, session string, body []byte) webResponse {
	switch {
	case w.tooFast():
		return webError(http.StatusTooManyRequests, -32000, "Rate limit exceeded")
	case len(bytes.TrimSpace(body)) == 0:
		return webError(http.StatusBadRequest, -32700, "Empty body")
	case claimed != "" && session != "" && claimed != session:
		return webError(http.StatusNotFound, -32600, "Invalid session")
	}
	answer := w.answer(ctx, body)
	if answer == "" {
		return webResponse{status: http.StatusAccepted}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return webResponse{status: http.StatusOK, header: []string{jsonType}, session: w.session, body: answer}
}

// tooFast reports whether a request is beyond the rate.
func (w *Web) tooFast() bool {
	if w.cfg.Rate == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for len(w.posts) > 0 && now.Sub(w.posts[0]) > time.Second {
		w.posts = w.posts[1:]
	}
	if len(w.posts) >= w.cfg.Rate {
		return true
	}
	w.posts = append(w.posts, now)
	return false
}

// newSession begins a session and ends that of the last client.
func (w *Web) newSession() {
	id := make([]byte, 16)
	rand.Read(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = hex.EncodeToString(id)
}

func webFailure(id string, code int, message string) string {
	data, err := json.Marshal(map[string]any{"code": code, "message": message})
	if err != nil { // cannot happen: it has a number and a string
		panic(err)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, id, data)
}
