package server

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// Handler serves MCP over HTTP at /mcp and /mcp/devices/{device}.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.http)
	mux.Handle("/mcp/devices/{device}", s.knownDevice(s.http))
	return s.Protected(mux)
}

// Protected requires a token, if there are any, and refuses pages of other sites. It
// does so before a response can say what exists here.
func (s *Server) Protected(next http.Handler) http.Handler {
	next = accepted(next)
	withToken := sdkauth.RequireBearerToken(s.verify, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(identified(next))
	return closing(s.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if valid, open := s.parts.Open(); open {
			serveWhile(valid, next, w, r)
			return
		}
		var checked checkedToken
		if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			checked.Credential, checked.err = s.parts.Verify(r.Context(), token, identity.Request{From: mcphttp.Hostname(r.RemoteAddr), Time: time.Now()})
			if s.wrongToken(r, checked.Credential, checked.err) {
				w.Header().Set("Retry-After", wrongWait)
				http.Error(w, tooManyWrong, http.StatusTooManyRequests)
				return
			}
		}
		withToken.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), checkedToken{}, checked)))
	})))
}

// serveWhile serves a request. If it is for a stream of notifications, the stream ends
// when the caller is no longer accepted. A call goes on: it was permitted, and its
// caller must learn its outcome.
func serveWhile(valid context.Context, next http.Handler, w http.ResponseWriter, r *http.Request) {
	if !mcphttp.Listens(r) {
		next.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(valid, cancel)
	defer stop()
	next.ServeHTTP(w, r.WithContext(ctx))
}

// serverFor returns the SDK's server for a request; nil if the view does not exist.
func (s *Server) serverFor(r *http.Request) *mcp.Server {
	if v := s.viewAt(r.PathValue("device")); v != nil {
		return v.sdk
	}
	return nil
}

// servers returns the SDK's servers of all views.
func (s *Server) servers() iter.Seq[*mcp.Server] {
	return func(yield func(*mcp.Server) bool) {
		for _, v := range s.allViews() {
			if !yield(v.sdk) {
				return
			}
		}
	}
}

// checkedToken is a token that was checked, in the context of its request.
type checkedToken struct {
	identity.Credential
	err error
}

// verify returns the principal of a token.
func (s *Server) verify(ctx context.Context, _ string, _ *http.Request) (*sdkauth.TokenInfo, error) {
	c, _ := ctx.Value(checkedToken{}).(checkedToken)
	if c.err != nil || c.Valid == nil {
		return nil, fmt.Errorf("%w: %w", sdkauth.ErrInvalidToken, c.err)
	}
	return &sdkauth.TokenInfo{UserID: c.Who.Name, Extra: map[string]any{"who": c.Who, "valid": c.Valid}}, nil
}

// identified stores the principal of a verified token in the context.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := sdkauth.TokenInfoFromContext(r.Context())
		who, _ := info.Extra["who"].(ferrule.Principal)
		valid, _ := info.Extra["valid"].(context.Context)
		serveWhile(valid, next, w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

// knownDevice answers 404 for devices that agents may not know. A session that exists
// goes on.
func (s *Server) knownDevice(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.device(r.PathValue("device")); !ok && r.Header.Get(mcphttp.SessionHeader) == "" {
			http.Error(w, ferrule.UnknownDevice(r.PathValue("device")).Message, http.StatusNotFound)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Guard refuses requests that a web page on another site could send. On a loopback
// address it accepts only names of this machine, and those of Config.Hosts.
func (s *Server) Guard(next http.Handler) http.Handler {
	return mcphttp.Guard(func(r *http.Request) string {
		local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if ok && isLoopback(local.String()) && !isLoopback(r.Host) && !s.isHost(r.Host) {
			return fmt.Sprintf("%q is not a name of this machine; if a proxy serves the gateway under this name, add it to agents.hosts", r.Host)
		}
		return ""
	}, next)
}

// SetHosts replaces the names of Config.Hosts.
func (s *Server) SetHosts(hosts []string) { s.hosts.Store(&hosts) }

// isHost reports whether a Host header has one of the names of Config.Hosts, with any
// port.
func (s *Server) isHost(host string) bool {
	return slices.ContainsFunc(*s.hosts.Load(), func(name string) bool { return strings.EqualFold(name, mcphttp.Hostname(host)) })
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(host string) bool {
	host = mcphttp.Hostname(host)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
