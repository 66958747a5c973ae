package server

import (
	"context"
	"net"
	"net/http"
)

// openTo reports whether the caller of a request needs no credential, and until when: it
// sends none and is on this machine. One that is sent is always checked.
func (s *Server) openTo(r *http.Request) (valid context.Context, open bool) {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if len(r.Header.Values("Authorization")) > 0 || !ok || !isLoopback(local.String()) {
		return nil, false
	}
	return s.parts.Open()
}

// noToken is the answer to a caller without a credential. Agent programs show it to people.
const noToken = "this gateway needs a token. On its machine, run `ferrule setup CLIENT --http` to set up an agent program, " +
	"or `ferrule token add NAME` for a token, which is sent as `Authorization: Bearer TOKEN`. See docs/how-to/let-agents-in.md"
