// Package mcphttp serves MCP over HTTP around the SDK: it adds the limits that the
// SDK leaves to its user. The gateway and devices written with thing share it.
//
//	request ─▶ Guard ─▶ Handler ─▶ SDK, without sessions  (2026-07-28 and later)
//	                      │     ├▶ SDK, with sessions     (up to 2025-11-25)
//	                      │     └▶ HTTP+SSE               (clients of 2024-11-05)
//	                      ├ session limit, idle sessions, duplicate members of JSON
//	                      ├ deadlines for sending a request and reading a response
//	                      └ EventStore and stream takeover, for clients that reconnect
//
// A client of a version with sessions may lose its connection in the middle of a
// call. It reconnects with the ID of the last event it has seen, receives the rest,
// and the call is not made again. A response that nothing was streamed before is JSON.
package mcphttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Protocol versions at which MCP changed how it uses HTTP.
const (
	// StatelessVersion is the first version without sessions.
	StatelessVersion = "2026-07-28"
	// SessionVersion is the last version with sessions.
	SessionVersion = "2025-11-25"
)

// sessionVersions are the versions with sessions.
var sessionVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", SessionVersion}

// Agreed returns the version of a session whose client asked for a version.
func Agreed(asked string) string {
	if slices.Contains(sessionVersions, asked) {
		return asked
	}
	return SessionVersion
}

// MCP headers.
const (
	VersionHeader = "Mcp-Protocol-Version"
	SessionHeader = "Mcp-Session-Id"
	MethodHeader  = "Mcp-Method"
	eventHeader   = "Last-Event-Id"
)

// MaxBody is the limit of a request, in bytes.
const MaxBody = 1 << 20

// Config configures a Handler.
type Config struct {
	// Server returns the server for a request, or nil if there is none.
	Server func(*http.Request) *mcp.Server
	// Servers returns all servers whose sessions are limited together.
	Servers func() iter.Seq[*mcp.Server]
	// MaxSessions is the limit of open sessions.
	MaxSessions int
	// Caller returns who makes a request; empty if nobody in particular. It may be nil.
	Caller func(context.Context) string
	// MaxPerCaller is the limit of open sessions of each caller; 0 for none.
	MaxPerCaller int
	// Left is called with a session some time after its stream of notifications has ended,
	// if the client did not open another: the client is probably gone. It may be nil.
	Left func(session string)
	// Check is called with the body of each POST before the SDK gets it. If it returns a
	// status, the request is refused with it, with an error code of JSON-RPC, and with headers
	// that Check may add. It may be nil.
	Check func(h http.Header, r *http.Request, body []byte) (status int, code int64, reason string)
	// Direct answers a POST of a version without sessions. It returns false, and writes
	// nothing, if the SDK is to answer it. It may be nil.
	Direct func(w http.ResponseWriter, r *http.Request, body []byte) bool
	// Prepare returns the body of a POST as the SDK is to get it, for versions with sessions. It
	// may be nil.
	Prepare func(body []byte) []byte
	// Idle is how long a session without a request and without an open stream is kept.
	Idle time.Duration
	// Events limits what is kept for clients that reconnect.
	Events EventLimits
	// AnyHost disables the SDK's check of the Host header, for callers with their own.
	AnyHost bool
	// SSE serves the older transport HTTP+SSE, too. The caller must check the Host header.
	SSE bool
	// Log receives the SDK's messages; nil for none.
	Log *slog.Logger
}

// Handler serves MCP over HTTP, for all protocol versions.
type Handler struct {
	// Deadlines must be set before the first request.
	Deadlines Deadlines

	config                Config
	events                *EventStore
	sessions              sessionUses
	owners                streamOwners
	sse                   sseSessions
	stateless, sessionful http.Handler
	streams               atomic.Int64 // open, and not sessions of the SDK
}

// New returns a handler. Run must run while it serves, and Track must be a receiving
// middleware of its servers.
func New(config Config) *Handler {
	h := &Handler{
		Deadlines: DefaultDeadlines(), config: config, events: NewEventStore(config.Events),
		sessions: newSessionUses(), owners: newStreamOwners(),
	}
	// The SDK serves versions without sessions only by a handler that has none at all.
	h.stateless = mcp.NewStreamableHTTPHandler(config.Server, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: MaxBody,
		DisableLocalhostProtection: config.AnyHost, Logger: config.Log,
	})
	h.sessionful = mcp.NewStreamableHTTPHandler(config.Server, &mcp.StreamableHTTPOptions{
		EventStore: h.events, MaxRequestBodyBytes: MaxBody,
		DisableLocalhostProtection: config.AnyHost, Logger: config.Log,
	})
	return h
}

// ServeHTTP sends a request to the SDK's handler for its protocol version. Streams stay open, and
// what they have on the stack is multiplied by all clients: so each kind has a function of its own.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timed := h.Deadlines.apply(w, r)
	switch {
	case r.Method == http.MethodPost:
		h.servePost(timed, r)
	case r.Header.Get(VersionHeader) >= StatelessVersion:
		h.stateless.ServeHTTP(timed, r)
	case h.config.SSE && OpensSSE(r):
		if h.admitted(timed, h.callerOf(r)) {
			unbuffered(timed)
			h.serveSSE(timed, r)
		}
	case r.Method == http.MethodGet:
		unbuffered(timed)
		h.serveStream(timed, r)
	default:
		owner, r := h.begin(r)
		defer owner.end()
		h.sessionful.ServeHTTP(timed, r)
	}
}

// unbuffered says that a proxy must not hold events back.
func unbuffered(w http.ResponseWriter) { w.Header().Set("X-Accel-Buffering", "no") }

// servePost serves a POST.
func (h *Handler) servePost(w *deadlineWriter, r *http.Request) {
	request := h.readPosted(w, r)
	if request == nil {
		return
	}
	if session, ok := sseMessage(r); ok && h.config.SSE {
		h.servePosted(w, r, session, request)
		return
	}
	stateless := r.Header.Get(VersionHeader) >= StatelessVersion
	first := !stateless && r.Header.Get(SessionHeader) == ""
	if first && !request.opens() {
		refuse(w, http.StatusBadRequest, request.id, jsonrpc.CodeInvalidRequest, "there is no session: send initialize first, then the header "+SessionHeader+" with each request")
		return
	}
	listens := stateless && Listens(r)
	if first || listens {
		caller := h.callerOf(r)
		if !h.admitted(w, caller) {
			return
		}
		if listens {
			defer h.sessions.listen(caller)()
		}
	}
	unbuffered(w)
	switch {
	case !stateless:
		h.serveCall(w, r, request)
	case !h.serveDirect(w, r, request.body, listens):
		h.serveStateless(w, r, request, listens)
	}
}

// serveStateless serves a request of a version without sessions by the SDK.
func (h *Handler) serveStateless(w *deadlineWriter, r *http.Request, request *posted, listens bool) {
	reply := &replyWriter{deadlineWriter: w, request: request, opened: func(string) {}}
	defer reply.finish()
	if listens {
		r = r.WithContext(context.WithValue(r.Context(), streamKey{}, &Stream{reply}))
	}
	h.stateless.ServeHTTP(reply, r)
}

// callerOf returns who makes a request; empty if nobody in particular.
func (h *Handler) callerOf(r *http.Request) string {
	if h.config.Caller == nil {
		return ""
	}
	return h.config.Caller(r.Context())
}

// admitted reports whether a caller may open one more session. If not, the request is refused.
func (h *Handler) admitted(w *deadlineWriter, caller string) bool {
	if h.admit(caller) {
		return true
	}
	w.Header().Set("Retry-After", "60")
	http.Error(w, h.TooManySessions(), http.StatusServiceUnavailable)
	return false
}

// readPosted reads, checks and prepares the body of a POST. It returns nil if the request was
// refused.
func (h *Handler) readPosted(w *deadlineWriter, r *http.Request) *posted {
	request, ok := readPosted(w, r)
	if !ok {
		return nil
	}
	if h.config.Check != nil {
		if status, code, reason := h.config.Check(w.Header(), r, request.body); status != 0 {
			// As a response of JSON-RPC, it does not end the session of a client.
			refuse(w, status, request.id, code, reason)
			return nil
		}
	}
	if h.config.Prepare != nil && !request.batch && r.Header.Get(VersionHeader) < StatelessVersion {
		request.body = h.config.Prepare(request.body)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(request.body)), int64(len(request.body))
	}
	return &request
}

// serveDirect answers a request without the SDK, if it can be.
func (h *Handler) serveDirect(w *deadlineWriter, r *http.Request, body []byte, listens bool) bool {
	if h.config.Direct == nil {
		return false
	}
	if listens {
		h.streams.Add(1)
		defer h.streams.Add(-1)
	}
	return h.config.Direct(w, r, body)
}

// Listens reports whether a request opens a stream of notifications, which lasts until
// its client disconnects.
func Listens(r *http.Request) bool {
	if r.Header.Get(VersionHeader) >= StatelessVersion {
		return r.Header.Get(MethodHeader) == "subscriptions/listen"
	}
	return r.Method == http.MethodGet
}

// TooManySessions is the message for a client that is refused because of the limit.
func (h *Handler) TooManySessions() string {
	if n := h.config.MaxPerCaller; n > 0 {
		return fmt.Sprintf("too many sessions are open: limit is %d, and %d for each agent; try again in a minute", h.config.MaxSessions, n)
	}
	return fmt.Sprintf("too many sessions are open: limit is %d; try again in a minute", h.config.MaxSessions)
}
