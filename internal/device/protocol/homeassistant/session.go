package homeassistant

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Session is the connection to one device of a Home Assistant: Invoke calls a service and
// waits for states, Run reads. There may be thousands, and most are idle, so states are
// kept as they came, and memory for a call is allocated by the call.
type Session struct {
	protocol *Protocol
	link     transport.Link
	notify   func(method string, params json.RawMessage)
	report   func(at time.Time, measured []ferrule.Measurement)
	change   func(*ferrule.Manifest)
	current  func(*ferrule.Call) error
	rate     ratelimit.Limiter // of events

	invoking chan struct{} // holds one element while a call is under way
	// sending holds one while a call is checked and sent, and while a change of the device is
	// passed on.
	sending chan struct{}

	mu      sync.Mutex
	group   bool
	device  []entity
	plan    *describe.Plan
	states  map[string]json.RawMessage // home.State, by ID of the entity
	calls   int
	waiting *waiting // what the call under way waits for; nil if nothing
	ended   error    // why the link ended; nil before
	crowded bool     // other callers wait
}

// entity is what a session needs of a home.Entity.
type entity struct {
	id, key, name, domain string
	assumed               bool
}

func newSession(p *Protocol, link transport.Link, offer *home.Offer, plan *describe.Plan) *Session {
	s := &Session{protocol: p, link: link, invoking: make(chan struct{}, 1), sending: make(chan struct{}, 1), states: make(map[string]json.RawMessage)}
	s.use(offer, plan)
	return s
}

// use keeps what is needed of an offer.
func (s *Session) use(offer *home.Offer, plan *describe.Plan) {
	device := make([]entity, 0, len(offer.Device.Entities))
	for _, e := range offer.Device.Entities {
		device = append(device, entity{e.ID, e.Key, e.Name, e.Domain, e.Assumed})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.group, s.device, s.plan = offer.Device.Group, device, plan
}

// Notify implements protocol.Notifier: events and presses of buttons are notifications.
func (s *Session) Notify(fn func(method string, params json.RawMessage)) { s.notify = fn }

// Report implements protocol.Reporter.
func (s *Session) Report(fn func(at time.Time, measured []ferrule.Measurement)) { s.report = fn }

// Changed implements protocol.Changer.
func (s *Session) Changed(fn func(*ferrule.Manifest), current func(*ferrule.Call) error) {
	s.change, s.current = fn, current
}

// Settled implements protocol.Changer. A change is passed on at once.
func (s *Session) Settled(ctx context.Context) error {
	select {
	case s.sending <- struct{}{}:
		<-s.sending
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Yield implements protocol.Yielder.
func (s *Session) Yield(waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crowded = waiting
	if s.waiting != nil {
		s.waiting.signal()
	}
}

// Run implements protocol.Session.
func (s *Session) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.link.Close() })
	defer stop()
	for {
		m, err := s.link.Recv(context.Background()) // here, for a small stack while it waits
		switch {
		case err == nil:
			s.hear(m, time.Now())
		case errors.Is(err, transport.ErrTooLong):
		default:
			s.finish(err)
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// finish closes the link, and waits for the end of the call under way.
func (s *Session) finish(err error) {
	s.mu.Lock()
	s.ended = err
	if s.waiting != nil {
		s.waiting.signal()
	}
	s.mu.Unlock()
	s.link.Close()
	s.invoking <- struct{}{}
	<-s.invoking
}

// end returns why the link ended; nil if it has not.
func (s *Session) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// hear reads one message. What cannot be decoded is dropped and noted.
func (s *Session) hear(m transport.Message, at time.Time) {
	var err error
	switch m.Channel {
	case channelStates:
		err = s.hearStates(m, at)
	case channelResult:
		err = s.hearResult(m.Data)
	case channelOffer:
		err = s.hearOffer(m.Data)
	}
	if err != nil {
		transport.Note(s.link, "dropped: a message that cannot be decoded, of %d bytes", len(m.Data))
	}
}

// hearResult passes the answer of Home Assistant to the call under way. Answers to earlier
// calls are late.
func (s *Session) hearResult(data []byte) error {
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting; w != nil && w.id == r.ID && w.result == nil {
		w.result, w.answered = &r, time.Now()
		w.signal()
	}
	return nil
}

// hearOffer describes the device again.
func (s *Session) hearOffer(data []byte) error {
	offer, err := parseOffer(data)
	if err != nil {
		return err
	}
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	manifest, plan := s.protocol.describe(offer)
	s.use(offer, plan)
	if s.change != nil {
		s.change(manifest)
	}
	return nil
}
