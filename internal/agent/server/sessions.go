package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionKey is the context key of the session of an agent on a pair of streams.
type sessionKey struct{}

// httpSessionKey is the context key of the session that a request belongs to.
type httpSessionKey struct{}

// sessions are the sessions over HTTP whose end is reported.
type sessions struct {
	mu       sync.Mutex
	followed map[*mcp.ServerSession]bool
}

// sessionName returns a name for a session over HTTP. Its ID is a secret.
func sessionName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "http-" + hex.EncodeToString(sum[:12])
}

// sessionOf returns the session of a request, whose end will be reported. It is empty for
// a protocol without sessions: nobody knows when such an agent is gone.
func (s *Server) sessionOf(ctx context.Context) string {
	if name, ok := ctx.Value(sessionKey{}).(string); ok {
		return name
	}
	session, _ := ctx.Value(httpSessionKey{}).(*mcp.ServerSession)
	if session == nil || session.ID() == "" {
		return ""
	}
	s.follow(session)
	return sessionName(session.ID())
}

// follow reports the end of a session over HTTP.
func (s *Server) follow(session *mcp.ServerSession) {
	all := &s.sessions
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.followed[session] {
		return
	}
	if all.followed == nil {
		all.followed = make(map[*mcp.ServerSession]bool)
	}
	all.followed[session] = true
	go func() {
		session.Wait()
		s.sessionEnded(sessionName(session.ID()))
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.followed, session)
	}()
}

func (s *Server) sessionEnded(name string) {
	if s.parts.SessionEnded != nil {
		s.parts.SessionEnded(name)
	}
}
