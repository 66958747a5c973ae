package server

import (
	"context"
	"net"
	"net/http"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// maxWaiting is the limit, for each host, of connections without an accepted request.
const maxWaiting = 64

// Listener limits the connections of agents. Half of the files that this process may open
// are left for everything else: commands must work while agents, or others, use all that
// they may. The HTTP server must have mcphttp.ConnContext.
func (s *Server) Listener(ln net.Listener) net.Listener {
	total := s.parts.Config.Connections
	if files := maxFiles(); files > 0 {
		total = min(total, max(files/2, 1))
	}
	return mcphttp.NewListener(ln, mcphttp.ConnLimits{Total: total, PerHost: max(total*3/4, 1), Waiting: maxWaiting})
}

// ConnContext is for the HTTP server of a Listener.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return mcphttp.ConnContext(ctx, conn)
}

// accept records that a request is accepted. Its connection stays open afterwards; that of any
// other request is closed.
func accept(w http.ResponseWriter, r *http.Request) {
	w.Header().Del("Connection")
	mcphttp.Accepted(r.Context())
}

// closing ends the connection with the response.
func closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		next.ServeHTTP(w, r)
	})
}

// agentName returns the name of an agent with a token; empty without one.
func agentName(ctx context.Context) string {
	who, _ := ctx.Value(callerKey{}).(ferrule.Principal)
	return who.Name
}
