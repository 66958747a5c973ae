package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxSubscribed is how many resources of a device can be subscribed to.
const maxSubscribed = 256

// The pause before a subscription is repeated. It doubles each time.
const (
	minResubscribe = time.Second
	maxResubscribe = time.Minute
)

// subscription is a subscriptions/listen request to a modern device. It lasts until it
// is cancelled.
//
// Over HTTP each request takes a connection, so one subscription covers everything, and
// is replaced when that changes. Over messages there is one for the lists and one for
// each resource: some servers end both of two subscriptions to the same thing.
type subscription struct {
	lists bool
	uris  []string
	ready chan error // gets the device's decision, once
	end   context.CancelFunc

	id    string // of the request
	acked bool
	again bool // it was interrupted, and notifications may have been missed
}

// subscribe subscribes to the resource of a call, or unsubscribes.
func (s *session) subscribe(ctx context.Context, c *activeCall, on bool) error {
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
		return ferrule.Errorf(ferrule.Busy, "deadline passed before %s could be asked", c.call.Device)
	}
	before, subscribed := s.subscribed()
	switch {
	case slices.Contains(subscribed, uri) == on:
		return nil
	case len(subscribed) == maxSubscribed && on:
		return ferrule.Errorf(ferrule.Limited, "too many subscribed resources of %s, limit is %d", c.call.Device, maxSubscribed)
	case s.conn.connPerRequest() && on:
		return s.replace(ctx, c, &subscription{lists: true, uris: append(subscribed, uri)}, before)
	case s.conn.connPerRequest():
		return s.replace(ctx, c, &subscription{lists: true, uris: without(subscribed, uri)}, before)
	case on:
		return s.replace(ctx, c, &subscription{uris: []string{uri}}, nil)
	}
	s.unsubscribe(slices.DeleteFunc(before, func(l *subscription) bool { return !slices.Contains(l.uris, uri) }))
	return nil
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == one })
}

// subscribed returns all subscriptions, and their resources.
func (s *session) subscribed() (all []*subscription, uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.subscriptions {
		uris = append(uris, l.uris...)
	}
	return slices.Clone(s.subscriptions), uris
}

// unsubscribe ends subscriptions.
func (s *session) unsubscribe(all []*subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscriptions = slices.DeleteFunc(s.subscriptions, func(l *subscription) bool { return slices.Contains(all, l) })
	for _, l := range all {
		l.end()
	}
}

// subscribeToLists subscribes to the list changes of a modern device.
func (s *session) subscribeToLists() {
	l := &subscription{lists: true}
	if s.isModern() && len(s.filter(l)) > 0 {
		s.start(l)
	}
}

// start starts a subscription, and reports whether the session is still alive.
func (s *session) start(l *subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.failed != nil {
		return false
	}
	l.ready = make(chan error, 1)
	s.subscriptions = append(s.subscriptions, l)
	s.open(l)
	return true
}

// replace starts a subscription. Once the device has accepted it, the ones before end.
func (s *session) replace(ctx context.Context, c *activeCall, l *subscription, before []*subscription) error {
	if !s.start(l) {
		return ferrule.Errorf(ferrule.Offline, "the connection to %s has ended", c.call.Device)
	}
	var err error
	select {
	case err = <-l.ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.unsubscribe([]*subscription{l})
	} else {
		s.unsubscribe(before)
	}
	var refused *jsonrpc.Error
	e := asRequestError(err)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return ferrule.Errorf(ferrule.Refused, "%s refused the subscription to %s: %w", c.call.Device, c.call.Tool, refused)
	case e != nil:
		return e.callError(ctx, c.call)
	case errors.Is(err, context.Canceled):
		return jsonrpc.WaitError(ctx, c.call)
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s did not confirm the subscription to %s: %w", c.call.Device, c.call.Tool, err)
}

// filter returns which notifications a subscription requests.
func (s *session) filter(l *subscription) map[string]any {
	filter := make(map[string]any)
	if len(l.uris) > 0 {
		filter["resourceSubscriptions"] = l.uris
	}
	if !l.lists {
		return filter
	}
	has := s.server.Capabilities
	if c := has.Tools; c != nil && c.ListChanged {
		filter["toolsListChanged"] = true
	}
	if c := has.Prompts; c != nil && c.ListChanged {
		filter["promptsListChanged"] = true
	}
	if c := has.Resources; c != nil && c.ListChanged {
		filter["resourcesListChanged"] = true
	}
	return filter
}

// errUnsubscribed is the decision on a subscription that ended before the device's.
var errUnsubscribed = errors.New("the subscription has ended")

// listen keeps a subscription in the background until it ends. It is called with mu held.
func (s *session) listen(ctx context.Context, l *subscription) {
	ctx, l.end = context.WithCancel(ctx)
	s.inBackground(func() {
		defer l.end()
		defer s.decide(l, &requestError{sent: true, err: errUnsubscribed})
		pause := minResubscribe
		for {
			began := time.Now()
			err := s.listenOnce(ctx, l)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.decide(l, err)
				s.note("subscriptions/listen failed: %v", err)
				if e := asRequestError(err); e == nil || !e.temporary() {
					return
				}
			}
			if time.Since(began) > maxResubscribe {
				pause = minResubscribe
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, maxResubscribe)
			s.mu.Lock()
			l.again = true
			s.mu.Unlock()
		}
	})
}

// listenOnce subscribes until the device ends it. An error is why the device refuses.
func (s *session) listenOnce(ctx context.Context, l *subscription) error {
	filter := s.filter(l)
	if len(filter) == 0 {
		s.decide(l, nil)
		<-ctx.Done()
		return nil
	}
	r := s.newRequest(nil, "subscriptions/listen", "", map[string]any{"notifications": filter})
	r.lasts = true
	s.mu.Lock()
	l.id = r.id
	s.mu.Unlock()
	a, err := s.conn.exchange(ctx, r)
	if ctx.Err() != nil {
		s.cancel(ctx, r)
		return nil
	}
	s.mu.Lock()
	acked := l.acked
	s.mu.Unlock()
	switch e := asRequestError(err); {
	case err != nil && (!acked || e != nil && e.declined()):
		return err
	case err == nil && a.Error != nil:
		return a.Error
	case err == nil && !acked:
		return errors.New("it ended without an acknowledgement")
	}
	return nil
}

// decide records whether the device accepts a subscription. The first decision counts
// for the goroutine that waits.
func (s *session) decide(l *subscription, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.acked = err == nil
	select {
	case l.ready <- err:
	default:
	}
}

// acknowledged handles the acknowledgement of a subscription.
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
	at := slices.IndexFunc(s.subscriptions, func(l *subscription) bool { return l.id == id })
	var l *subscription
	var again bool
	if at >= 0 {
		l = s.subscriptions[at]
		again, l.again = l.again, false // a device may acknowledge more than once
	}
	s.mu.Unlock()
	if l == nil {
		return
	}
	s.decide(l, nil)
	if again && l.lists {
		s.inBackground(s.recheck)
	}
}

// recheck finds out what has changed while there was no subscription. A modern device
// has no session that it could lose, so this is how a restart is noticed.
func (s *session) recheck() {
	a, err := s.request(s.running, discoverWait, "server/discover", nil)
	if err != nil || a.Error != nil || s.checkServer(a.Result) {
		s.listChanged() // reading the lists notices a device that is gone
	}
}

// notificationGap is called when notifications of a legacy device may have been missed.
// Some devices end their streams all the time, so that the lists are not read each time.
func (s *session) notificationGap() {
	s.mu.Lock()
	rested := time.Since(s.reread) > maxResubscribe
	if rested {
		s.reread = time.Now()
	}
	s.mu.Unlock()
	if rested && len(s.filter(&subscription{lists: true})) > 0 {
		s.listChanged()
	}
}

// errOther ends the session with a device that was replaced or updated.
var errOther = errors.New("its name, version or capabilities have changed: it was restarted")

// checkServer compares a result of server/discover with the greeting, and reports whether
// the device is the same. If not, the session ends.
func (s *session) checkServer(discovered []byte) bool {
	now, err := parseServer(discovered)
	if err != nil || now.Info.Name == s.server.Info.Name && now.Info.Version == s.server.Info.Version && reflect.DeepEqual(now.Capabilities, s.server.Capabilities) {
		return true
	}
	s.fail(errOther)
	return false
}
