package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// maxBody is the size of the largest request.
const maxBody = 1 << 20

// modernVersion is the first version of the protocol that knows no sessions, and
// legacyVersion the last that does.
const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
)

// The headers of MCP that are looked at here.
const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
	methodHeader  = "Mcp-Method"
	eventHeader   = "Last-Event-Id"
)

// Handler serves MCP over HTTP at /mcp and /mcp/devices/{device}.
func (f *Server) Handler() http.Handler {
	eras := f.eras()
	mux := http.NewServeMux()
	mux.Handle("/mcp", eras)
	mux.Handle("/mcp/devices/{device}", f.known(eras))
	return f.Protected(mux)
}

// Protected lets through who may ask here, before anything is said about what is there:
// who shows a token, if there are any, and no page of another site.
func (f *Server) Protected(next http.Handler) http.Handler {
	if f.parts.Tokens.Required() {
		next = sdkauth.RequireBearerToken(f.verify, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(identified(next))
	}
	return Guard(next)
}

// eras sends each request to the handler of its era: the SDK serves versions
// without sessions only where there are none at all.
func (f *Server) eras() http.Handler {
	get := func(r *http.Request) *mcp.Server {
		if v := f.viewAt(r.PathValue("device")); v != nil {
			return v.server
		}
		return nil
	}
	modern := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxBody, Logger: f.sdkLog,
	})
	legacy := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		EventStore: f.replays, MaxRequestBodyBytes: maxBody, Logger: f.sdkLog,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isModern := r.Header.Get(versionHeader) >= modernVersion
		opens := isModern && r.Header.Get(methodHeader) == "subscriptions/listen" ||
			!isModern && r.Method == http.MethodPost && r.Header.Get(sessionHeader) == ""
		if opens && f.Sessions() >= f.parts.Config.Sessions && !f.endOldest() {
			w.Header().Set("Retry-After", "60")
			http.Error(w, fmt.Sprintf("%d agents are connected; more are not possible", f.parts.Config.Sessions), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-Accel-Buffering", "no")
		timed, r := f.patient(w, r)
		if isModern {
			modern.ServeHTTP(timed, r)
			return
		}
		f.serveLegacy(legacy, timed, r)
	})
}

// verify tells whose token it is.
func (f *Server) verify(_ context.Context, token string, _ *http.Request) (*sdkauth.TokenInfo, error) {
	who, err := f.parts.Tokens.Principal(token)
	if errors.Is(err, identity.ErrUnknown) {
		return nil, fmt.Errorf("%w: %w", sdkauth.ErrInvalidToken, err)
	}
	if err != nil {
		return nil, err
	}
	return &sdkauth.TokenInfo{UserID: who.Name, Extra: map[string]any{"who": who}}, nil
}

// identified puts who is asking where calls look for it.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := sdkauth.TokenInfoFromContext(r.Context()).Extra["who"].(ferrule.Principal)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

// known lets through to devices that are there for agents.
func (f *Server) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := f.parts.Catalog.Lookup(r.PathValue("device")); !ok && r.Header.Get(sessionHeader) == "" {
			http.Error(w, ferrule.UnknownDevice(r.PathValue("device")).Message, http.StatusNotFound)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Guard refuses what a web page on another site could send: a name of its own that
// leads here, or a request from there.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && loopback(local.String()) && !loopback(r.Host) {
			http.Error(w, fmt.Sprintf("%q is not a name of this machine", r.Host), http.StatusForbidden)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if from, err := url.Parse(origin); err != nil || from.Host != r.Host {
				http.Error(w, fmt.Sprintf("pages of %q may not ask here", origin), http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// loopback tells whether a host, with or without a port, is this machine.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// patient bounds how long an agent may take to send, and to read what it is sent:
// one that does neither keeps nobody else waiting.
func (f *Server) patient(w http.ResponseWriter, r *http.Request) (*timedWriter, *http.Request) {
	control := http.NewResponseController(w)
	if r.Method == http.MethodPost {
		control.SetReadDeadline(time.Now().Add(f.sendTime))
		r.Body = &timedBody{r.Body, control}
	}
	return &timedWriter{w, control, f.takeTime}, r
}

// timedBody lifts the deadline once the request is there: that nothing follows
// must not look as if the agent had gone. A request that never ends keeps its own:
// the server would wait for the rest of it.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// timedWriter gives each piece of an answer its time.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	time    time.Duration
}

func (w *timedWriter) Write(p []byte) (int, error) {
	w.control.SetWriteDeadline(time.Now().Add(w.time))
	defer w.control.SetWriteDeadline(time.Time{})
	return w.ResponseWriter.Write(p)
}

// FlushError is what the controller of a response looks for.
func (w *timedWriter) FlushError() error {
	w.control.SetWriteDeadline(time.Now().Add(w.time))
	defer w.control.SetWriteDeadline(time.Time{})
	return w.control.Flush()
}
