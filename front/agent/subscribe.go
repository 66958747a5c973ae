package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule"
)

// What agents may subscribe to is the state of devices, and their own resources. The
// SDK knows who has, and sends; what is here decides of what, and when.
const (
	maxSubscriptions = 100                    // of one session
	updatePause      = 250 * time.Millisecond // between two updates of one resource
)

// updatedMethod is how a device says that one of its resources is another.
const updatedMethod = "notifications/resources/updated"

// Hear takes in something that a device said. It does not block.
func (f *Front) Hear(e ferrule.Event) {
	if e.What != ferrule.Said {
		return // what becomes of devices is told by the catalog
	}
	var said struct {
		URI string `json:"uri"`
	}
	if e.Method == updatedMethod {
		json.Unmarshal(e.Params, &said) // if it fails, it is said of no resource
	}
	for _, v := range f.allViews() {
		if v.subscriptions.none() {
			continue
		}
		v.subscriptions.touch(stateURI(e.Device))
		if said.URI != "" {
			v.subscriptions.touch(v.uriOf(topic{e.Device, said.URI}))
		}
	}
}

// Missed tells that something may have been said that was not heard here.
func (f *Front) Missed(int) {
	for _, v := range f.allViews() {
		v.subscriptions.touchAll()
	}
}

// stateURI is the resource that tells how a device is.
func stateURI(device string) string { return devicesURI + "/" + device + "/state" }

// deviceIn is the device in such a URI; whatever it is in another.
func deviceIn(uri string) string {
	return strings.TrimSuffix(strings.TrimPrefix(uri, devicesURI+"/"), "/state")
}

// subscribe answers resources/subscribe, and is asked for each resource that an agent
// wants to hear of by subscriptions/listen.
func (v *view) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	return v.enlist(ctx, req.Session, req.Params.URI)
}

// enlist notes that a session wants to hear of a resource, and has the device asked to
// tell of it, if it is one of its own.
func (v *view) enlist(ctx context.Context, session *mcp.ServerSession, uri string) error {
	t, err := v.topicOf(uri)
	if err != nil {
		return err
	}
	if v.subscriptions.has(session, uri) {
		return nil
	}
	if t.uri != "" {
		if err := v.front.follows.begin(ctx, caller(ctx), t); err != nil {
			return requestError(v.advised(ferrule.AsError(err)))
		}
	}
	switch first, ok := v.subscriptions.add(session, uri, t); {
	case !ok:
		return badParams(fmt.Sprintf("%d resources are subscribed to; more are not possible", maxSubscriptions))
	case first:
		go func() {
			session.Wait()
			v.subscriptions.leave(session)
		}()
	}
	return nil
}

// unsubscribe answers resources/unsubscribe.
func (v *view) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	v.subscriptions.remove(req.Session, req.Params.URI)
	return nil
}

// agreed is what an agent may subscribe to of all that it asks for at once, the first
// of it: it is told which these are.
func (v *view) agreed(ctx context.Context, session *mcp.ServerSession, uris []string) (agreed []string) {
	for _, uri := range uris[:min(len(uris), maxSubscriptions)] {
		if ctx.Err() != nil {
			break
		}
		if !slices.Contains(agreed, uri) && v.enlist(ctx, session, uri) == nil {
			agreed = append(agreed, uri)
		}
	}
	return agreed
}

// forget ends what was agreed on: the SDK does so unless it gave up before.
func (v *view) forget(session *mcp.ServerSession, uris []string) {
	for _, uri := range uris {
		v.subscriptions.remove(session, uri)
	}
}

// subscriptions is who has subscribed to what, at one view.
type subscriptions struct {
	update func(uri string)           // tells those who have
	look   func(device string) glance // what is to be seen of a device now
	over   func(topic)                // one fewer wants to hear of it

	mu       sync.Mutex
	sessions map[mcp.Session]map[string]topic // what each has, by URI
	subjects map[string]*subject              // by URI
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
		sessions: make(map[mcp.Session]map[string]topic), subjects: make(map[string]*subject),
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

// add notes that a session wants to hear of a resource; first tells that it is the
// first of that session. It is not ok if the session has too many.
func (s *subscriptions) add(session mcp.Session, uri string, t topic) (first, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.sessions[session]
	if _, twice := has[uri]; twice || len(has) >= maxSubscriptions {
		s.over(t)
		return false, twice
	}
	if has == nil {
		has = make(map[string]topic)
		s.sessions[session] = has
		first = true
	}
	has[uri] = t
	if s.subjects[uri] == nil {
		s.subjects[uri] = &subject{topic: t, seen: s.look(t.device)}
	}
	s.subjects[uri].sessions++
	return first, true
}

// remove notes that a session has heard enough of a resource. The session is
// remembered until it ends.
func (s *subscriptions) remove(session mcp.Session, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(session, uri)
}

func (s *subscriptions) drop(session mcp.Session, uri string) {
	t, has := s.sessions[session][uri]
	if !has {
		return
	}
	delete(s.sessions[session], uri)
	s.over(t)
	subject := s.subjects[uri]
	if subject.sessions--; subject.sessions > 0 {
		return
	}
	if subject.timer != nil {
		subject.timer.Stop()
	}
	delete(s.subjects, uri)
}

// leave notes that a session has ended.
func (s *subscriptions) leave(session mcp.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.sessions[session] {
		s.drop(session, uri)
	}
	delete(s.sessions, session)
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
		if subject.uri != "" {
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
	subject.timer = time.AfterFunc(time.Until(subject.told.Add(updatePause)), func() {
		s.mu.Lock()
		current := s.subjects[uri] == subject
		subject.timer, subject.told = nil, time.Now()
		s.mu.Unlock()
		if current {
			s.update(uri)
		}
	})
}
