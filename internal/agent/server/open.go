package server

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// openTo reports whether the caller of a request needs no credential, and until when: it
// sends none and is on this machine. One that is sent is always checked. A request that a
// proxy has passed on may be from another machine, whatever its Host.
func (s *Server) openTo(r *http.Request) (valid context.Context, open bool) {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if len(r.Header.Values("Authorization")) > 0 || !ok || !isLoopback(local.String()) || forwarded(r.Header) {
		return nil, false
	}
	return s.parts.Open()
}

// forwarded reports whether a proxy says that it has passed on a request.
func forwarded(h http.Header) bool {
	for name := range h {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return true
		}
	}
	return false
}

// noTokenText is the answer to a caller without a credential. Agent programs show it to people.
func (s *Server) noTokenText(r *http.Request, needs ferrule.Scopes) string {
	switch {
	case needs == ferrule.ScopeMetrics:
		return noMetricsToken
	case s.canLogIn(r):
		return noToken + loginInstead
	}
	return noToken
}

// canLogIn reports whether an agent gets a token for an address by logging in.
func (s *Server) canLogIn(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/mcp") && len(s.parts.AuthServers(mcphttp.Origin(s.parts.URL, r))) > 0
}

// addCommand is the command that makes a token with a scope.
func addCommand(needs ferrule.Scopes) string {
	if needs == ferrule.ScopeMetrics {
		return "`ferrule token add prometheus --scope metrics`"
	}
	return "`ferrule token add`"
}

const noMetricsToken = "this address needs a token with the scope metrics. On the gateway's machine, run `ferrule token add prometheus --scope metrics`; " +
	"the token is sent as `Authorization: Bearer TOKEN`. See docs/how-to/monitor.md"

const loginInstead = ". An agent program that can log in needs no token from you: start the login there, see docs/how-to/oauth.md"

const noBearer = "the header Authorization has no `Bearer`; nothing was called. Write it as `Authorization: Bearer TOKEN`"

const noToken = "this gateway needs a token. On its machine, run `ferrule setup CLIENT --http` to set up an agent program, " +
	"or `ferrule token add NAME` for a token, which is sent as `Authorization: Bearer TOKEN`. See docs/how-to/let-agents-in.md"
