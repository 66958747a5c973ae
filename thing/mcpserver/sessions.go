package mcpserver

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionUses knows when each session was last used. The SDK would end one whose
// stream is open and that asks for nothing: it is decided here.
type sessionUses struct {
	mu   sync.Mutex
	uses map[string]*sessionUse // by ID
}

type sessionUse struct {
	requests int // under way, open streams among them
	last     time.Time
}

func newSessionUses() *sessionUses { return &sessionUses{uses: make(map[string]*sessionUse)} }

const (
	// maxSessionID is how long the ID of a session can be. Those of the SDK are half
	// as long.
	maxSessionID = 64
	// maxUses is how many sessions are remembered; that there was never such a one is
	// found out later.
	maxUses = 1024
)

// begin notes that a request of a session begins; what it returns, that it ends.
func (s *sessionUses) begin(id string) (end func()) {
	if id == "" || len(id) > maxSessionID {
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
		if u.requests == 0 && len(s.uses) > maxUses {
			delete(s.uses, id) // if it is one after all, it is met anew
		}
	}
}

// last tells when a session was last used, and whether nothing is under way in it.
// One that is met for the first time is used now.
func (s *sessionUses) last(id string) (at time.Time, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[id]
	if u == nil {
		u = &sessionUse{last: time.Now()}
		s.uses[id] = u
	}
	return u.last, u.requests == 0
}

// keep forgets all sessions but those.
func (s *sessionUses) keep(there map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.uses {
		if !there[id] && u.requests == 0 {
			delete(s.uses, id)
		}
	}
}

// room tells whether one more program may connect. If there are too many, the one
// that has not been heard of for longest is sent away, if that is a minute.
func (d *Device) room() bool {
	open := 0
	var oldest *mcp.ServerSession
	last := time.Now().Add(-time.Minute)
	for session := range d.server.Sessions() {
		open++
		if session.ID() == "" { // it has an open stream or socket
			continue
		}
		if at, free := d.uses.last(session.ID()); free && at.Before(last) {
			oldest, last = session, at
		}
	}
	if open < d.config.Sessions {
		return true
	}
	if oldest == nil {
		return false
	}
	oldest.Close()
	return true
}

// sweep ends sessions that are not used any more until ctx ends.
func (d *Device) sweep(ctx context.Context) {
	ticker := time.NewTicker(min(time.Minute, d.config.Idle/2))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.endIdle(time.Now().Add(-d.config.Idle))
		case <-ctx.Done():
			return
		}
	}
}

// endIdle ends the sessions that have not been used since then.
func (d *Device) endIdle(since time.Time) {
	there := make(map[string]bool)
	for session := range d.server.Sessions() {
		id := session.ID()
		if id == "" {
			continue
		}
		if at, free := d.uses.last(id); free && at.Before(since) {
			session.Close()
			continue
		}
		there[id] = true
	}
	d.uses.keep(there)
}
