package server

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// Handler serves MCP over HTTP at /mcp and /mcp/devices/{device}. An address may have a
// profile: see profiles.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", profiled(s.http))
	mux.Handle("/mcp/devices/{device}", s.knownDevice(profiled(s.http)))
	return s.Protected(ferrule.ScopeRead, mux)
}

// serveWhile serves a request. If it is for a stream of notifications, the stream ends
// when the caller is no longer accepted. A call goes on: it was permitted, and its
// caller must learn its outcome.
func serveWhile(valid context.Context, next http.Handler, w http.ResponseWriter, r *http.Request) {
	switch {
	case !mcphttp.Listens(r):
		next.ServeHTTP(w, r)
		return
	case mcphttp.OpensSSE(r):
		next.ServeHTTP(w, r.WithContext(mcphttp.Until(r.Context(), valid)))
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

// knownDevice answers 404 for devices that agents may not know, or that the caller's
// credential is not good for. A session at a device that is gone goes on.
func (s *Server) knownDevice(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dev, ok := s.device(r.PathValue("device"))
		if ok && !caller(r.Context()).Reaches(dev) || !ok && !mcphttp.InSession(r) {
			http.Error(w, ferrule.UnknownDevice(r.PathValue("device")).Message, http.StatusNotFound)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Guard refuses requests that a web page on another site could send. On a loopback
// address it accepts only names of this machine, and those of Config.Hosts.
func (s *Server) Guard(next http.Handler) http.Handler { return mcphttp.Guard(s.checkHost, next) }

// checkHost returns why the Host of a request is refused; empty if it is not.
func (s *Server) checkHost(r *http.Request) string {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if ok && isLoopback(local.String()) && !isLoopback(r.Host) && !s.isHost(r.Host) {
		return fmt.Sprintf("%q is not a name of this machine; if a proxy serves the gateway under this name, add it to agents.hosts", r.Host)
	}
	return ""
}

// SetHosts replaces the names of Config.Hosts.
func (s *Server) SetHosts(hosts []string) { s.hosts.Store(&hosts) }

// isHost reports whether a Host header has one of the names of Config.Hosts, the name in
// Parts.URL or that of this machine, with any port.
func (s *Server) isHost(host string) bool {
	names := append([]string{s.hostname}, *s.hosts.Load()...)
	if u, err := url.Parse(s.parts.URL); err == nil {
		names = append(names, u.Hostname())
	}
	host = mcphttp.Hostname(host)
	return host != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(host string) bool {
	host = mcphttp.Hostname(host)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
