package server

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions knows when each session was last used. The SDK would end one whose
// stream is open and that asks for nothing, or keep one whose agent has long
// gone: it is decided here.
type sessions struct {
	mu   sync.Mutex
	uses map[string]*sessionUse // by ID
}

type sessionUse struct {
	requests int // under way, open streams among them
	last     time.Time
}

func newSessions() *sessions { return &sessions{uses: make(map[string]*sessionUse)} }

// use notes that a request of a session begins; what it returns, that it ends.
func (s *sessions) use(id string) (end func()) {
	if id == "" {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[id]
	if u == nil {
		u = &sessionUse{}
		s.uses[id] = u
	}
	u.requests++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.requests--
		u.last = time.Now()
	}
}

// idle tells whether a session has not been used since then. One that is met for
// the first time is used now.
func (s *sessions) idle(id string, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[id]
	if u == nil {
		s.uses[id] = &sessionUse{last: time.Now()}
		return false
	}
	return u.requests == 0 && u.last.Before(since)
}

// last tells when a session was last used, and whether nothing is under way in it.
func (s *sessions) last(id string) (at time.Time, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[id]
	if u == nil || u.requests > 0 {
		return at, false
	}
	return u.last, true
}

// keep forgets all sessions but those.
func (s *sessions) keep(there map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.uses {
		if !there[id] && u.requests == 0 {
			delete(s.uses, id)
		}
	}
}

// Sessions is how many agents are connected.
func (f *Server) Sessions() int {
	n := 0
	for _, v := range f.allViews() {
		for range v.server.Sessions() {
			n++
		}
	}
	return n
}

// endOldest makes room for one more agent: it ends the session that has not been
// used for longest, a minute at least, and in which nothing is under way and no
// stream is open. A program that begins anew for each call locks nobody out.
func (f *Server) endOldest() bool {
	var oldest *mcp.ServerSession
	last := time.Now().Add(-time.Minute)
	for _, v := range f.allViews() {
		for session := range v.server.Sessions() {
			if at, free := f.sessions.last(session.ID()); free && at.Before(last) {
				oldest, last = session, at
			}
		}
	}
	if oldest != nil {
		oldest.Close()
	}
	return oldest != nil
}

// sweep ends sessions that are not used any more, drops views that nobody looks at, and
// forgets what agents were told long ago, until ctx ends.
func (f *Server) sweep(ctx context.Context) {
	every := min(time.Minute, f.parts.Config.Idle/2)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.endIdle(time.Now().Add(-f.parts.Config.Idle))
			f.dropUnused(time.Now().Add(-every))
			f.replays.forget(time.Now().Add(-keptTime))
		case <-ctx.Done():
			return
		}
	}
}

// endIdle ends the sessions that have not been used since then.
func (f *Server) endIdle(since time.Time) {
	there := make(map[string]bool)
	for _, v := range f.allViews() {
		for session := range v.server.Sessions() {
			id := session.ID()
			switch {
			case id == "": // of a single request, or on standard input
			case f.sessions.idle(id, since):
				go session.Close() // it waits for calls, and one may have come just now
			default:
				there[id] = true
			}
		}
	}
	f.sessions.keep(there)
}

// dropUnused drops views of devices that nobody has looked at since then.
func (f *Server) dropUnused(since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for device, v := range f.views {
		v.mu.Lock()
		used := v.used.After(since)
		v.mu.Unlock()
		if device == "" || used {
			continue
		}
		there := false
		for range v.server.Sessions() {
			there = true
		}
		if !there {
			delete(f.views, device)
		}
	}
}
