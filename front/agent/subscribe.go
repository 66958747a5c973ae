package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule"
)

// What agents may subscribe to is the state of devices. The SDK knows who has, and
// sends; what is here decides of what, and when.
const (
	maxSubscriptions = 100                    // of one session
	updatePause      = 250 * time.Millisecond // between two updates of one resource
)

// Hear takes in something that a device said. It does not block.
func (f *Front) Hear(e ferrule.Event) {
	if e.What != ferrule.Said {
		return // what becomes of devices is told by the catalog
	}
	for _, v := range f.allViews() {
		v.subscriptions.touch(e.Device)
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

// stateOf is the device whose state a URI means, if an agent here may subscribe to it.
// There is one way to write each: the SDK keeps what it is given.
func (v *view) stateOf(uri string) (device string, err error) {
	device = deviceIn(uri)
	if uri != stateURI(device) {
		return "", badParams(fmt.Sprintf("only the state of a device can be subscribed to, such as %s", stateURI("robot")))
	}
	_, _, known := v.front.parts.Catalog.Lookup(device)
	if !known || device == ferrule.GatewayID || v.device != "" && v.device != device {
		return "", noResource(uri)
	}
	return device, nil
}

// subscribe answers resources/subscribe, and is asked for each resource that an agent
// wants to hear of by subscriptions/listen.
func (v *view) subscribe(_ context.Context, req *mcp.SubscribeRequest) error {
	device, err := v.stateOf(req.Params.URI)
	if err != nil {
		return err
	}
	switch first, ok := v.subscriptions.add(req.Session, device); {
	case !ok:
		return badParams(fmt.Sprintf("%d resources are subscribed to; more are not possible", maxSubscriptions))
	case first:
		go func() {
			req.Session.Wait()
			v.subscriptions.leave(req.Session)
		}()
	}
	return nil
}

// unsubscribe answers resources/unsubscribe.
func (v *view) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	v.subscriptions.remove(req.Session, deviceIn(req.Params.URI))
	return nil
}

// agreed is what an agent may subscribe to of all that it asks for at once: it is told
// which these are.
func (v *view) agreed(uris []string) (agreed []string) {
	for _, uri := range uris {
		if len(agreed) == maxSubscriptions {
			break
		}
		if _, err := v.stateOf(uri); err == nil && !slices.Contains(agreed, uri) {
			agreed = append(agreed, uri)
		}
	}
	return agreed
}

// subscriptions is who has subscribed to what, at one view.
type subscriptions struct {
	update func(device string)        // tells those who have
	look   func(device string) glance // what is to be seen of a device now

	mu       sync.Mutex
	sessions map[mcp.Session]map[string]bool // the devices of each
	subjects map[string]*subject             // by device
}

// subject is a device of which somebody wants to hear.
type subject struct {
	sessions int
	seen     glance      // when agents were last told
	told     time.Time   // when that was
	timer    *time.Timer // runs until they are told next; nil if there is nothing to tell
}

// glance is what of a device agents are told of when it changes.
type glance struct {
	known bool
	state ferrule.State
	since int64 // in nanoseconds
}

func newSubscriptions(update func(device string), look func(device string) glance) *subscriptions {
	return &subscriptions{update: update, look: look, sessions: make(map[mcp.Session]map[string]bool), subjects: make(map[string]*subject)}
}

// add notes that a session wants to hear of a device; first tells that it is the first
// of that session. It is not ok if the session has too many.
func (s *subscriptions) add(session mcp.Session, device string) (first, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	devices := s.sessions[session]
	switch {
	case devices[device]:
		return false, true
	case len(devices) >= maxSubscriptions:
		return false, false
	case devices == nil:
		devices = make(map[string]bool)
		s.sessions[session] = devices
		first = true
	}
	devices[device] = true
	if s.subjects[device] == nil {
		s.subjects[device] = &subject{seen: s.look(device)}
	}
	s.subjects[device].sessions++
	return first, true
}

// remove notes that a session has heard enough of a device. The session is remembered
// until it ends.
func (s *subscriptions) remove(session mcp.Session, device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(session, device)
}

func (s *subscriptions) drop(session mcp.Session, device string) {
	if !s.sessions[session][device] {
		return
	}
	delete(s.sessions[session], device)
	subject := s.subjects[device]
	if subject.sessions--; subject.sessions > 0 {
		return
	}
	if subject.timer != nil {
		subject.timer.Stop()
	}
	delete(s.subjects, device)
}

// leave notes that a session has ended.
func (s *subscriptions) leave(session mcp.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for device := range s.sessions[session] {
		s.drop(session, device)
	}
	delete(s.sessions, session)
}

// touch has those told who want to hear of a device: at once, or when they have not
// been told for a moment.
func (s *subscriptions) touch(device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subject := s.subjects[device]; subject != nil {
		s.arm(device, subject)
	}
}

// touchAll does so for each device that anybody wants to hear of.
func (s *subscriptions) touchAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for device, subject := range s.subjects {
		s.arm(device, subject)
	}
}

// compare does so for each device that has come or gone.
func (s *subscriptions) compare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for device, subject := range s.subjects {
		if now := s.look(device); now != subject.seen {
			subject.seen = now
			s.arm(device, subject)
		}
	}
}

// arm has a subject told of soon. It is called with mu held.
func (s *subscriptions) arm(device string, subject *subject) {
	if subject.timer != nil {
		return
	}
	subject.timer = time.AfterFunc(time.Until(subject.told.Add(updatePause)), func() {
		s.mu.Lock()
		current := s.subjects[device] == subject
		subject.timer, subject.told = nil, time.Now()
		s.mu.Unlock()
		if current {
			s.update(device)
		}
	})
}
