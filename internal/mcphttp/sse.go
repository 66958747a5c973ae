package mcphttp

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTP+SSE is the transport of 2024-11-05, for clients that know no other one, such as Home
// Assistant before 2026.2:
//
//	GET  /mcp              a stream; its first event has the address for messages
//	POST /mcp?session=ID   a message; its answer comes on the stream
//
// A session ends with its stream, and its calls are cancelled: a client cannot reconnect. All
// else is as in Streamable HTTP: limits, deadlines, the check of each message, and the owner
// of a session.

// sessionParam is the query parameter with the session of a message. It is a secret.
const sessionParam = "session"

// keepAliveEvery is how often a stream without events gets a comment, so that proxies keep it
// and a client that is gone is noticed.
const keepAliveEvery = 15 * time.Second

// refusedEvery is how often a stream whose caller is not accepted any more is checked for calls.
const refusedEvery = 50 * time.Millisecond

// comment is an event that clients ignore.
const comment = ":\n\n"

// sseSessions are the sessions over HTTP+SSE.
type sseSessions struct {
	mu   sync.Mutex
	byID map[string]*sseSession
}

// sseSession is a session over HTTP+SSE. It is a transport and its connection for the SDK.
type sseSession struct {
	id       string
	user     string // that only may send messages; empty for anybody
	messages chan jsonrpc.Message
	done     chan struct{} // closed when the session has ended

	mu     sync.Mutex
	stream *deadlineWriter
	closed bool
}

// OpensSSE reports whether a request opens a session over HTTP+SSE. A client of a later
// version has a session before it opens a stream.
func OpensSSE(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get(SessionHeader) == "" && r.Header.Get(VersionHeader) == "" &&
		strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), streamType)
}

// sseMessage returns the session that a message is for; ok is false if it is not of HTTP+SSE.
func sseMessage(r *http.Request) (session string, ok bool) {
	if r.Method != http.MethodPost || r.Header.Get(SessionHeader) != "" {
		return "", false
	}
	session = r.URL.Query().Get(sessionParam)
	return session, session != ""
}

// InSession reports whether a request belongs to a session that was opened before.
func InSession(r *http.Request) bool {
	if _, ok := sseMessage(r); ok {
		return true
	}
	return r.Header.Get(SessionHeader) != "" && r.Header.Get(VersionHeader) < StatelessVersion
}

// untilKey is the context key of a context that ends when a caller is no longer accepted.
type untilKey struct{}

// Until returns a context for a request whose caller is accepted until valid ends. Its stream
// ends then, but not before the calls that are under way: their outcome comes on it.
func Until(ctx, valid context.Context) context.Context {
	return context.WithValue(ctx, untilKey{}, valid)
}

// serveSSE serves a stream until its client disconnects or its session is ended.
func (h *Handler) serveSSE(w *deadlineWriter, r *http.Request) {
	server := h.config.Server(r)
	if server == nil {
		http.Error(w, "no server available", http.StatusBadRequest)
		return
	}
	s := &sseSession{id: rand.Text(), user: userOf(r), messages: make(chan jsonrpc.Message), done: make(chan struct{}), stream: w}
	use := h.sessions.begin(s.id)
	defer use.end()
	use.by(h.config.Caller, r.Context())
	session, err := server.Connect(r.Context(), s, nil)
	if err != nil {
		http.Error(w, "failed connection", http.StatusInternalServerError)
		return
	}
	defer session.Close() // waits for the calls, which Close of the stream cancels
	defer s.Close()
	h.sse.add(s)
	defer h.sse.remove(s.id)
	header := w.Header()
	header.Set("Content-Type", streamType)
	header.Set("Cache-Control", "no-cache, no-transform")
	if s.write("event: endpoint\ndata: "+(&url.URL{Path: r.URL.Path, RawQuery: sessionParam + "=" + s.id}).RequestURI()+"\n\n") != nil {
		return
	}
	idle := time.AfterFunc(h.Deadlines.Request, func() {
		if session.InitializeParams() == nil {
			s.Close()
		}
	})
	defer idle.Stop()
	s.keepAlive(r.Context(), use)
}

// keepAlive sends comments until the session or ctx ends, or its caller is not accepted any
// more and has no call under way.
func (s *sseSession) keepAlive(ctx context.Context, use *sessionUse) {
	valid, _ := ctx.Value(untilKey{}).(context.Context)
	if valid == nil {
		valid = context.Background()
	}
	refused := valid.Done()
	ticker := time.NewTicker(keepAliveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-refused:
			refused = nil
			ticker.Reset(refusedEvery)
		case <-ticker.C:
			if valid.Err() != nil {
				if !use.busy() {
					return
				}
			} else if s.write(comment) != nil {
				return
			}
		case <-s.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// servePosted hands a message to its session.
func (h *Handler) servePosted(w *deadlineWriter, r *http.Request, id string, request *posted) {
	fail := func(status int, reason string) { refuse(w, status, request.id, jsonrpc.CodeInvalidRequest, reason) }
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != jsonType {
		fail(http.StatusUnsupportedMediaType, "Content-Type must be "+jsonType)
		return
	}
	s := h.sse.find(id)
	switch {
	case s == nil:
		fail(http.StatusNotFound, "session not found: it ended with its stream")
		return
	case s.user != "" && s.user != userOf(r):
		fail(http.StatusForbidden, "the session belongs to another user")
		return
	}
	message, err := jsonrpc.DecodeMessage(request.body)
	if err != nil {
		fail(http.StatusBadRequest, fmt.Sprintf("invalid message: %v", err))
		return
	}
	if call, ok := message.(*jsonrpc.Request); ok {
		call.Extra = &mcp.RequestExtra{TokenInfo: sdkauth.TokenInfoFromContext(r.Context()), Header: r.Header}
	}
	select {
	case s.messages <- message:
		w.WriteHeader(http.StatusAccepted)
	case <-s.done:
		fail(http.StatusNotFound, "session not found: it ended with its stream")
	case <-r.Context().Done():
	}
}

// userOf returns who a session belongs to; empty without a token.
func userOf(r *http.Request) string {
	if info := sdkauth.TokenInfoFromContext(r.Context()); info != nil {
		return info.UserID
	}
	return ""
}

func (all *sseSessions) add(s *sseSession) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byID == nil {
		all.byID = make(map[string]*sseSession)
	}
	all.byID[s.id] = s
}

func (all *sseSessions) remove(id string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.byID, id)
}

func (all *sseSessions) find(id string) *sseSession {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

// SupportsProtocolVersion implements mcp.ProtocolVersionSupporter.
func (s *sseSession) SupportsProtocolVersion(version string) bool {
	return slices.Contains(sessionVersions, version)
}

// Connect implements mcp.Transport.
func (s *sseSession) Connect(context.Context) (mcp.Connection, error) { return s, nil }

// SessionID implements mcp.Connection.
func (s *sseSession) SessionID() string { return s.id }

// Read implements mcp.Connection.
func (s *sseSession) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case message := <-s.messages:
		return message, nil
	case <-s.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements mcp.Connection.
func (s *sseSession) Write(_ context.Context, message jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return err
	}
	return s.write(messageEvent + eventData + string(data) + "\n\n")
}

// write sends an event. A client that does not read in time loses its session.
func (s *sseSession) write(event string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return io.EOF
	}
	_, err := io.WriteString(s.stream, event)
	if err == nil {
		err = s.stream.FlushError()
	}
	if err != nil {
		s.end()
	}
	return err
}

// Close implements mcp.Connection.
func (s *sseSession) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	return nil
}

// end ends the session. It is called with mu held.
func (s *sseSession) end() {
	if !s.closed {
		s.closed = true
		close(s.done)
	}
}
