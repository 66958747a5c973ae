package hass

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Session is the connection to one device behind a broker: Invoke publishes and waits, Run
// reads. There may be thousands, and most are idle, so memory for a call is allocated by
// the call.
type Session struct {
	link      transport.Link
	began     time.Time
	publisher string
	tools     []tool  // sorted by name
	states    []state // sorted by topic
	falls     bool    // some states fall back to off
	notify    func(method string, params json.RawMessage)
	report    func(at time.Time, measured []ferrule.Measurement)
	rate      ratelimit.Limiter // of events

	invoking chan struct{} // holds one element while a call is under way

	mu      sync.Mutex
	waiting *waiting // what the call under way waits for; nil if nothing
	ended   error    // why the link ended; nil before
	crowded bool     // other callers wait
}

func newSession(link transport.Link, d *description) *Session {
	falls := slices.ContainsFunc(d.states, func(s state) bool { return s.OffDelay > 0 })
	return &Session{link: link, began: time.Now(), publisher: d.publisher, tools: d.tools, states: d.states, falls: falls, invoking: make(chan struct{}, 1)}
}

// Notify implements protocol.Notifier: the events of a device are its notifications.
func (s *Session) Notify(fn func(method string, params json.RawMessage)) { s.notify = fn }

// Report implements protocol.Reporter.
func (s *Session) Report(fn func(at time.Time, measured []ferrule.Measurement)) { s.report = fn }

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
		var m transport.Message
		var err error
		if until := s.fall(time.Now()); until.IsZero() {
			m, err = s.link.Recv(context.Background()) // here, for a small stack while it waits
		} else {
			m, err = s.recvUntil(until)
		}
		switch {
		case err == nil:
			s.hear(m, time.Now())
		case errors.Is(err, transport.ErrTooLong), err == errDue:
		default:
			s.finish(err)
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// errDue is the error of recvUntil at the given time. A link that ended because a broker did
// not confirm a message in time has a deadline in its error, too.
var errDue = errors.New("a state is due")

// recvUntil returns the next message. It returns errDue at the given time.
func (s *Session) recvUntil(until time.Time) (transport.Message, error) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	m, err := s.link.Recv(ctx)
	if err != nil && ctx.Err() != nil {
		return m, errDue
	}
	return m, err
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

// events is the limit of events of a device.
var events = ratelimit.Rate{Burst: 20, Every: time.Second / 5}

// event passes on an event within the limit.
func (s *Session) event(st *state, v entity.Value) {
	if s.notify == nil || st.Secret {
		return
	}
	if !s.rate.Allow(events, time.Now()) {
		transport.Note(s.link, "dropped: event, limit is %d per second", time.Second/events.Every)
		return
	}
	params, err := json.Marshal(map[string]json.RawMessage{"value": v.JSON})
	if err == nil && len(params) <= ferrule.MaxParams {
		s.notify(st.Name, params)
	}
}
