package server

import (
	"context"
	"net"
	"net/http"
	"strings"
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

// noToken is the answer to a caller without a credential. Agent programs show it to people.
const noToken = "this gateway needs a token. On its machine, run `ferrule setup CLIENT --http` to set up an agent program, " +
	"or `ferrule token add NAME` for a token, which is sent as `Authorization: Bearer TOKEN`. See docs/how-to/let-agents-in.md"
