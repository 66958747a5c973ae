package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxFollowed is how many resources of a device may be followed at once.
const maxFollowed = 256

// How long is waited before listening again.
const (
	listenAgain = time.Second
	listenLater = time.Minute
)

// listening is a request of the newer era that has the device tell what changes. It
// lasts until it is cancelled.
//
// Over HTTP each takes a connection, so there is one for everything: another takes its
// place when something else is to be told. Over messages there is one for the lists
// and one for each resource: of two that want the same, some servers end both at once.
type listening struct {
	lists bool
	uris  []string
	ready chan error // gets what became of it, once
	end   context.CancelFunc

	id    string // of the request
	acked bool
	again bool // it was interrupted, and what was told meanwhile is not known
}

// follow has the device tell when a resource changes, or no longer.
func (s *session) follow(ctx context.Context, c *underway, on bool) error {
	uri := c.call.Tool
	if !s.isModern() {
		method := "resources/unsubscribe"
		if on {
			method = "resources/subscribe"
		}
		_, err := s.ask(ctx, c, method, "", map[string]any{"uri": uri})
		return err
	}
	select {
	case <-s.started:
	case <-ctx.Done():
		return ferrule.Errorf(ferrule.Busy, "the time was over before %s was asked", c.call.Device)
	}
	before, followed := s.followed()
	switch {
	case slices.Contains(followed, uri) == on:
		return nil
	case len(followed) == maxFollowed && on:
		return ferrule.Errorf(ferrule.Limited, "%d resources of %s are followed already", maxFollowed, c.call.Device)
	case s.courier.frugal() && on:
		return s.listenInstead(ctx, c, &listening{lists: true, uris: append(followed, uri)}, before)
	case s.courier.frugal():
		return s.listenInstead(ctx, c, &listening{lists: true, uris: without(followed, uri)}, before)
	case on:
		return s.listenInstead(ctx, c, &listening{uris: []string{uri}}, nil)
	}
	s.leave(slices.DeleteFunc(before, func(l *listening) bool { return !slices.Contains(l.uris, uri) }))
	return nil
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == one })
}

// followed are the resources that the device is to tell of, and by what.
func (s *session) followed() (by []*listening, uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listening {
		uris = append(uris, l.uris...)
	}
	return slices.Clone(s.listening), uris
}

// leave ends some that are listened to.
func (s *session) leave(all []*listening) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = slices.DeleteFunc(s.listening, func(l *listening) bool { return slices.Contains(all, l) })
	for _, l := range all {
		l.end()
	}
}

// listenToLists has a device of the newer era tell when a list changes.
func (s *session) listenToLists() {
	l := &listening{lists: true}
	if s.isModern() && len(s.wishes(l)) > 0 {
		s.start(l)
	}
}

// start begins to listen.
func (s *session) start(l *listening) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.failed != nil {
		return false
	}
	l.ready = make(chan error, 1)
	s.listening = append(s.listening, l)
	s.open(l)
	return true
}

// listenInstead begins to listen, in place of those before, which are listened to
// until the device has agreed.
func (s *session) listenInstead(ctx context.Context, c *underway, l *listening, before []*listening) error {
	if !s.start(l) {
		return ferrule.Errorf(ferrule.Offline, "the link to %s is gone", c.call.Device)
	}
	var err error
	select {
	case err = <-l.ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.leave([]*listening{l})
	} else {
		s.leave(before)
	}
	var refused *rpcError
	var t *trouble
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return ferrule.Errorf(ferrule.Refused, "%s does not tell of %s: %w", c.call.Device, c.call.Tool, refused)
	case errors.As(err, &t):
		return t.failure(c.call)
	case errors.Is(err, context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while %s was at it", c.call.Device).AfterSend()
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s does not say whether it will tell of %s: %w", c.call.Device, c.call.Tool, err)
}

// wishes is what the device is to tell.
func (s *session) wishes(l *listening) map[string]any {
	wishes := make(map[string]any)
	if len(l.uris) > 0 {
		wishes["resourceSubscriptions"] = l.uris
	}
	if !l.lists {
		return wishes
	}
	if c := s.able.Tools; c != nil && c.ListChanged {
		wishes["toolsListChanged"] = true
	}
	if c := s.able.Prompts; c != nil && c.ListChanged {
		wishes["promptsListChanged"] = true
	}
	if c := s.able.Resources; c != nil && c.ListChanged {
		wishes["resourcesListChanged"] = true
	}
	return wishes
}

// errNoMore is why nobody is told what becomes of l.
var errNoMore = errors.New("it is not listened to any more")

// listen listens until l ends. It is called with mu held, and returns at once.
func (s *session) listen(ctx context.Context, l *listening) {
	ctx, l.end = context.WithCancel(ctx)
	s.beside(func() {
		defer l.end()
		defer s.settle(l, &trouble{sent: true, err: errNoMore}) // if somebody still waits
		pause := listenAgain
		for {
			began := time.Now()
			err := s.listenOnce(ctx, l)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.settle(l, err)
				s.note("it does not tell what changes: %v", err)
				if t := (*trouble)(nil); !errors.As(err, &t) || !t.passing() {
					return
				}
			}
			if time.Since(began) > listenLater {
				pause = listenAgain
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, listenLater)
			s.mu.Lock()
			l.again = true
			s.mu.Unlock()
		}
	})
}

// listenOnce listens until the device ends it. The error is why it will not have it.
func (s *session) listenOnce(ctx context.Context, l *listening) error {
	wishes := s.wishes(l)
	if len(wishes) == 0 {
		s.settle(l, nil)
		<-ctx.Done()
		return nil
	}
	r := s.request(nil, "subscriptions/listen", "", map[string]any{"notifications": wishes})
	s.mu.Lock()
	l.id = r.id
	s.mu.Unlock()
	a, err := s.courier.ask(ctx, r)
	if ctx.Err() != nil {
		s.cancel(ctx, r)
		return nil
	}
	s.mu.Lock()
	acked := l.acked
	s.mu.Unlock()
	switch t := (*trouble)(nil); {
	case err != nil && (!acked || errors.As(err, &t) && t.declined()):
		return err
	case err == nil && a.err != nil:
		return a.err
	case err == nil && !acked:
		return fmt.Errorf("it ended without a word")
	}
	return nil
}

// settle tells whoever waits what became of l.
func (s *session) settle(l *listening, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.acked = err == nil
	select {
	case l.ready <- err:
	default:
	}
}

// acknowledged is told by the device when it has agreed to tell something.
func (s *session) acknowledged(params []byte) {
	var p struct {
		Meta struct {
			ID json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	id := string(bytes.Trim(p.Meta.ID, `"`))
	s.mu.Lock()
	at := slices.IndexFunc(s.listening, func(l *listening) bool { return l.id == id })
	var l *listening
	var again bool
	if at >= 0 {
		l = s.listening[at]
		again, l.again = l.again, false // it may say so more than once
	}
	s.mu.Unlock()
	if l == nil {
		return
	}
	s.settle(l, nil)
	if again && l.lists {
		s.beside(s.recheck)
	}
}

// errOther ends a conversation with a device that is not what it was.
var errOther = errors.New("it says something else of itself: it was started anew")

// recheck finds out what has changed while the device was not listened to. A device of
// the newer era has no session that it could lose, so this is how it is seen that it
// was restarted.
func (s *session) recheck() {
	a, err := s.within(s.running, discoverWait, "server/discover", nil)
	if err != nil || a.err != nil || s.same(a.result) {
		s.changed() // if it is gone, that is found out there
	}
}

// missed is told when a device of the older era was not listened to for a moment, in which
// it may have said that a list has changed. Some end their streams all the time, so the
// lists are not read each time.
func (s *session) missed() {
	s.mu.Lock()
	rested := time.Since(s.reread) > listenLater
	if rested {
		s.reread = time.Now()
	}
	s.mu.Unlock()
	if rested && len(s.wishes(&listening{lists: true})) > 0 {
		s.changed()
	}
}

// same tells whether a device is what it was when it was greeted, by what it says of
// itself. If it is not, it is greeted again.
func (s *session) same(discovered []byte) bool {
	about, err := parseServer(discovered)
	if err != nil || about.Info.Name == s.about.Info.Name && about.Info.Version == s.about.Info.Version && reflect.DeepEqual(about.Capabilities, s.about.Capabilities) {
		return true
	}
	s.fail(errOther)
	return false
}
