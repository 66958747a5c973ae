package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionKey is the context key of the session of an agent on a pair of streams.
type sessionKey struct{}

// httpSessionKey is the context key of the session that a request belongs to.
type httpSessionKey struct{}

// sessions are the sessions over HTTP whose end is reported: how often each was left. A
// client that seemed to be gone may come back, and its calls then have another session.
type sessions struct {
	mu   sync.Mutex
	left map[string]int // by ID
}

// sessionName returns a name for a session over HTTP. Its ID is a secret.
func sessionName(id string, left int) string {
	sum := sha256.Sum256([]byte(id))
	return "http-" + hex.EncodeToString(sum[:12]) + "-" + strconv.Itoa(left)
}

// sessionOf returns the session of a request, whose end will be reported. It is empty for
// a protocol without sessions, and for an agent with one for each call: nobody knows when such
// an agent is gone.
func (s *Server) sessionOf(ctx context.Context) string {
	if name, ok := ctx.Value(sessionKey{}).(string); ok {
		return name
	}
	session, _ := ctx.Value(httpSessionKey{}).(*mcp.ServerSession)
	if session == nil || session.ID() == "" || profileOf(ctx).brief {
		return ""
	}
	return s.follow(session)
}

// follow returns the name of a session over HTTP, and reports its end.
func (s *Server) follow(session *mcp.ServerSession) string {
	all, id := &s.sessions, session.ID()
	all.mu.Lock()
	defer all.mu.Unlock()
	left, followed := all.left[id]
	if !followed {
		if all.left == nil {
			all.left = make(map[string]int)
		}
		all.left[id] = 0
		go func() {
			session.Wait()
			s.sessionLeft(id)
			all.mu.Lock()
			defer all.mu.Unlock()
			delete(all.left, id)
		}()
	}
	return sessionName(id, left)
}

// sessionLeft reports that the client of a session over HTTP is gone.
func (s *Server) sessionLeft(id string) {
	s.sessions.mu.Lock()
	left, followed := s.sessions.left[id]
	if followed {
		s.sessions.left[id]++
	}
	s.sessions.mu.Unlock()
	if followed {
		s.sessionEnded(sessionName(id, left))
	}
}

func (s *Server) sessionEnded(name string) {
	if s.parts.SessionEnded != nil {
		s.parts.SessionEnded(name)
	}
}
