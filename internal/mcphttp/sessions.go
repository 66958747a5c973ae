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
	mu      sync.Mutex
	byID    map[string]*sessionUse
	listens map[string]int // open streams that are sessions themselves, by caller
}

type sessionUse struct {
	uses     *sessionUses
	caller   string
	requests int // under way, including open streams
	streams  int // of notifications
	last     time.Time
}

func newSessionUses() sessionUses {
	return sessionUses{byID: make(map[string]*sessionUse), listens: make(map[string]int)}
}

// callerOf returns the caller of a session.
func (s *sessionUses) callerOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.byID[id]; u != nil {
		return u.caller
	}
	return ""
}

// listen records that a caller opens a stream that is a session itself, until the
// returned function is called.
func (s *sessionUses) listen(caller string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listens[caller]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.listens[caller]--; s.listens[caller] == 0 {
			delete(s.listens, caller)
		}
	}
}

// listening returns how many such streams a caller has.
func (s *sessionUses) listening(caller string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listens[caller]
}

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

// leaveTime is how long a client may take to open a stream again: a little more than it is
// told to wait.
const leaveTime = reconnectDelay + 500*time.Millisecond

// open records that a session opens a stream of notifications, until the returned function
// is called. If there is no other stream some time later, left is called.
func (s *sessionUses) open(id string, left func(session string)) (closed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.byID[id]
	if u == nil || left == nil {
		return func() {}
	}
	u.streams++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if u.streams--; u.streams > 0 {
			return
		}
		time.AfterFunc(leaveTime, func() {
			s.mu.Lock()
			gone := u.streams == 0
			s.mu.Unlock()
			if gone {
				left(id)
			}
		})
	}
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

// busy reports whether there is another request than the one of the caller.
func (u *sessionUse) busy() bool {
	u.uses.mu.Lock()
	defer u.uses.mu.Unlock()
	return u.requests > 1
}

// by records the caller of a session. It may be called on nil.
func (u *sessionUse) by(caller func(context.Context) string, ctx context.Context) {
	if u == nil || caller == nil {
		return
	}
	name := caller(ctx)
	u.uses.mu.Lock()
	defer u.uses.mu.Unlock()
	u.caller = name
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
		use := h.sessions.begin(req.GetSession().ID())
		defer use.end()
		use.by(h.config.Caller, ctx)
		return next(ctx, method, req)
	}
}

// Sessions returns the number of open sessions, and of streams that need none.
func (h *Handler) Sessions() int {
	n := int(h.streams.Load())
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
func (h *Handler) Admit() bool {
	return h.Sessions() < h.config.MaxSessions || h.endOldest(func(string) bool { return true })
}

// admit does the same for a session of a caller, who has a limit, too.
func (h *Handler) admit(caller string) bool {
	if caller != "" && h.config.MaxPerCaller > 0 {
		own := func(id string) bool { return h.sessions.callerOf(id) == caller }
		if h.sessionsOf(own)+h.sessions.listening(caller) >= h.config.MaxPerCaller && !h.endOldest(own) {
			return false
		}
	}
	return h.Admit()
}

// sessionsOf counts the sessions that match. Streams that are sessions do not count.
func (h *Handler) sessionsOf(match func(id string) bool) (n int) {
	for server := range h.config.Servers() {
		for session := range server.Sessions() {
			if session.ID() != "" && match(session.ID()) {
				n++
			}
		}
	}
	return n
}

// endOldest ends the session that was not used for longest, of those that match.
func (h *Handler) endOldest(match func(id string) bool) bool {
	var oldest *mcp.ServerSession
	last := time.Now().Add(-time.Minute)
	for server := range h.config.Servers() {
		for session := range server.Sessions() {
			if session.ID() == "" || !match(session.ID()) { // empty: a single request, or a stream that is the session
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
