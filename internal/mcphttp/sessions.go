package mcphttp

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionUses records when each session was last used. The SDK would end an idle
// session although its stream is open, and keep one whose client is long gone.
type sessionUses struct {
	mu   sync.Mutex
	byID map[string]*sessionUse
}

type sessionUse struct {
	uses     *sessionUses
	requests int // under way, including open streams
	last     time.Time
}

func newSessionUses() sessionUses { return sessionUses{byID: make(map[string]*sessionUse)} }

// begin records that a request of a session begins. The caller must call end.
func (s *sessionUses) begin(id string) *sessionUse {
	if id == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.byID[id]
	if u == nil {
		u = &sessionUse{uses: s}
		s.byID[id] = u
	}
	u.requests++
	return u
}

// end records that a request has ended. It may be called on nil.
func (u *sessionUse) end() {
	if u == nil {
		return
	}
	u.uses.mu.Lock()
	defer u.uses.mu.Unlock()
	u.requests--
	u.last = time.Now()
}

// last returns when a session was last used, and whether it has no request under
// way. A session that is seen for the first time counts as used now.
func (s *sessionUses) last(id string) (at time.Time, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.byID[id]
	if u == nil {
		u = &sessionUse{uses: s, last: time.Now()}
		s.byID[id] = u
	}
	return u.last, u.requests == 0
}

// keep forgets all sessions except those given.
func (s *sessionUses) keep(ids map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.byID {
		if !ids[id] && u.requests == 0 {
			delete(s.byID, id)
		}
	}
}

// Track is a receiving middleware. A request keeps its session in use until it is
// answered, even if its connection ends before.
func (h *Handler) Track(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		defer h.sessions.begin(req.GetSession().ID()).end()
		return next(ctx, method, req)
	}
}

// Sessions returns the number of open sessions.
func (h *Handler) Sessions() int {
	n := 0
	for server := range h.config.Servers() {
		for range server.Sessions() {
			n++
		}
	}
	return n
}

// Admit reports whether one more session may open. At the limit it ends the session
// that was not used for longest, so that a client that opens a session per call locks
// nobody out. A session is spared if it was used within the last minute, has a request
// under way, or has an open stream.
func (h *Handler) Admit() bool { return h.Sessions() < h.config.MaxSessions || h.endOldest() }

func (h *Handler) endOldest() bool {
	var oldest *mcp.ServerSession
	last := time.Now().Add(-time.Minute)
	for server := range h.config.Servers() {
		for session := range server.Sessions() {
			if session.ID() == "" { // a single request, or a stream that is the session
				continue
			}
			if at, free := h.sessions.last(session.ID()); free && at.Before(last) {
				oldest, last = session, at
			}
		}
	}
	if oldest != nil {
		oldest.Close()
	}
	return oldest != nil
}

// Run ends idle sessions and drops expired events until ctx ends.
func (h *Handler) Run(ctx context.Context) {
	ticker := time.NewTicker(min(time.Minute, h.config.Idle/2))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			h.endIdle(time.Now().Add(-h.config.Idle))
			if age := h.config.Events.Age; age > 0 {
				h.events.Expire(time.Now().Add(-age))
			}
		case <-ctx.Done():
			return
		}
	}
}

// endIdle ends the sessions that were not used since a time.
func (h *Handler) endIdle(since time.Time) {
	kept := make(map[string]bool)
	for server := range h.config.Servers() {
		for session := range server.Sessions() {
			id := session.ID()
			if id == "" { // a single request, or a stream that is the session
				continue
			}
			if at, free := h.sessions.last(id); free && at.Before(since) {
				go session.Close() // waits for a call that may have just arrived
				continue
			}
			kept[id] = true
		}
	}
	h.sessions.keep(kept)
}
