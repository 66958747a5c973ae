package server

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// subscriptions is who has subscribed to what, at one view.
type subscriptions struct {
	update func(uri string)           // tells those who have
	look   func(device string) glance // what is to be seen of a device now
	over   func(topic)                // one fewer wants to hear of it; called without mu

	mu       sync.Mutex
	sessions map[mcp.Session]map[string]interest // what each has, by URI
	subjects map[string]*subject                 // by URI
}

// interest is what a session has subscribed to.
type interest struct {
	topic
	asked time.Time // when that was; zero once the SDK knows
}

// subject is a resource of which somebody wants to hear.
type subject struct {
	topic
	sessions int
	seen     glance      // of a device whose state it is, when agents were last told
	told     time.Time   // when that was
	timer    *time.Timer // runs until they are told next; nil if there is nothing to tell
}

// glance is what of a device agents are told of when it changes.
type glance struct {
	known bool
	state ferrule.State
	since int64 // in nanoseconds
}

func newSubscriptions(update func(uri string), look func(device string) glance, over func(topic)) *subscriptions {
	return &subscriptions{
		update: update, look: look, over: over,
		sessions: make(map[mcp.Session]map[string]interest), subjects: make(map[string]*subject),
	}
}

// none tells whether nobody has subscribed to anything.
func (s *subscriptions) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subjects) == 0
}

// has tells whether a session has subscribed to a resource.
func (s *subscriptions) has(session mcp.Session, uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.sessions[session][uri]
	return has
}

// of is what a session has subscribed to.
func (s *subscriptions) of(session mcp.Session) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.sessions[session]))
}

// add notes that a session wants to hear of a resource; first tells that it is the
// first of that session. It is not ok if the session has too many.
func (s *subscriptions) add(session mcp.Session, uri string, t topic) (first, ok bool) {
	s.mu.Lock()
	has := s.sessions[session]
	if _, twice := has[uri]; twice || len(has) >= maxSubscriptions {
		s.mu.Unlock()
		s.over(t)
		return false, twice
	}
	defer s.mu.Unlock()
	if has == nil {
		has = make(map[string]interest)
		s.sessions[session] = has
		first = true
	}
	has[uri] = interest{t, time.Now()}
	if s.subjects[uri] == nil {
		s.subjects[uri] = &subject{topic: t, seen: s.look(t.device)}
	}
	s.subjects[uri].sessions++
	return first, true
}

// begun notes that the SDK knows of what a session has subscribed to. What it was told in
// between did not reach that session, and is told again.
func (s *subscriptions) begun(session mcp.Session, uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uri := range uris {
		has := s.sessions[session][uri]
		if has.asked.IsZero() {
			continue
		}
		if subject := s.subjects[uri]; !subject.told.Before(has.asked) {
			s.arm(uri, subject)
		}
		s.sessions[session][uri] = interest{topic: has.topic}
	}
}

// remove notes that a session has heard enough of a resource. The session is
// remembered until it ends.
func (s *subscriptions) remove(session mcp.Session, uri string) {
	s.mu.Lock()
	t, had := s.drop(session, uri)
	s.mu.Unlock()
	if had {
		s.over(t)
	}
}

// drop does so, but for telling over. It is called with mu held.
func (s *subscriptions) drop(session mcp.Session, uri string) (t topic, had bool) {
	was, had := s.sessions[session][uri]
	if !had {
		return t, false
	}
	t = was.topic
	delete(s.sessions[session], uri)
	subject := s.subjects[uri]
	if subject.sessions--; subject.sessions > 0 {
		return t, true
	}
	if subject.timer != nil {
		subject.timer.Stop()
	}
	delete(s.subjects, uri)
	return t, true
}

// leave notes that a session has ended.
func (s *subscriptions) leave(session mcp.Session) {
	var left []topic
	s.mu.Lock()
	for uri := range s.sessions[session] {
		t, _ := s.drop(session, uri)
		left = append(left, t)
	}
	delete(s.sessions, session)
	s.mu.Unlock()
	for _, t := range left {
		s.over(t)
	}
}

// touch has those told who want to hear of a resource: at once, or when they have not
// been told for a moment.
func (s *subscriptions) touch(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subject := s.subjects[uri]; subject != nil {
		s.arm(uri, subject)
	}
}

// touchAll does so for each resource that anybody wants to hear of.
func (s *subscriptions) touchAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri, subject := range s.subjects {
		s.arm(uri, subject)
	}
}

// compare does so for the state of each device that has come or gone.
func (s *subscriptions) compare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri, subject := range s.subjects {
		if !subject.isState() {
			continue
		}
		if now := s.look(subject.device); now != subject.seen {
			subject.seen = now
			s.arm(uri, subject)
		}
	}
}

// arm has a subject told of soon. It is called with mu held.
func (s *subscriptions) arm(uri string, subject *subject) {
	if subject.timer != nil {
		return
	}
	subject.timer = time.AfterFunc(time.Until(subject.told.Add(subject.pause())), func() {
		s.mu.Lock()
		current := s.subjects[uri] == subject
		subject.timer, subject.told = nil, time.Now()
		s.mu.Unlock()
		if current {
			s.update(uri)
		}
	})
}
