package xiaozhi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// maxRequest is the longest request in bytes. Firmware has no such limit and
// little memory.
const maxRequest = 8 << 10

// beat is how long nothing is sent at most. After two minutes without a message,
// a device regards its WebSocket as dead.
const beat = 50 * time.Second

// session is the conversation with one device: Invoke sends and waits, Run reads
// and hands over. At most one call is in flight. There may be very many sessions,
// and most are idle: what a call needs is made for it.
type session struct {
	dialect *Protocol
	link    transport.Link
	token   string // what the device shows with its pictures
	limit   int    // bytes of the longest request
	notify  func(method string, params json.RawMessage)
	allowed ratelimit.Limiter // of notifications

	sending chan struct{} // holds one while somebody sends
	sent    time.Time     // when the last message went out; of whoever sends

	mu     sync.Mutex
	ids    ids
	flight *flight
	ended  error       // why the link is gone, once it is
	timer  *time.Timer // of the next beat; nil if none is needed
}

// flight is a call that waits for its answer.
type flight struct {
	id     int32
	landed chan outcome // gets the outcome, once
}

// outcome is an answer, or why none will come.
type outcome struct {
	answer answer
	err    error
}

func newSession(d *Protocol, link transport.Link) *session {
	limit := maxRequest
	if safe := link.Info().SafeWrite; safe > 0 {
		limit = min(limit, safe)
	}
	return &session{dialect: d, link: link, limit: limit, ids: ids{d.firstID()}, sending: make(chan struct{}, 1)}
}

func (s *session) note(format string, args ...any) { transport.Note(s.link, format, args...) }

// send sends one message; whoever else sends is waited for.
func (s *session) send(ctx context.Context, data []byte) error {
	select {
	case s.sending <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", transport.ErrUnsent, ctx.Err())
	}
	defer func() { <-s.sending }()
	s.sent = time.Now()
	return s.link.Send(ctx, transport.Message{Data: data})
}

// Invoke implements dialect.Session.
func (s *session) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	params, err := callParams(call.Tool, call.Args)
	if err != nil {
		return nil, err
	}
	f, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer s.end(f)
	message := request(f.id, "tools/call", params)
	if n := len(message); n > s.limit {
		return nil, ferrule.Errorf(ferrule.Invalid, "the request would be %d bytes long; %s is sent %d at most", n, call.Device, s.limit).
			WithHint("use shorter arguments")
	}
	taken := s.await()
	o, err := s.fly(ctx, call, f, message)
	pictures := taken()
	if err != nil {
		return nil, err
	}
	return result(call, o, pictures)
}

// await keeps the pictures that come during a call, if anybody takes them.
func (s *session) await() (stop func() []ferrule.Content) {
	if s.token == "" {
		return func() []ferrule.Content { return nil }
	}
	return s.dialect.parts.Pictures.Await(s.token)
}

// fly sends a call and waits for its outcome.
func (s *session) fly(ctx context.Context, call *ferrule.Call, f *flight, message []byte) (outcome, error) {
	if err := s.send(ctx, message); err != nil {
		return outcome{}, sendError(ctx, call, err)
	}
	select {
	case o := <-f.landed:
		return o, nil
	case <-ctx.Done():
	}
	s.end(f)
	select {
	case o := <-f.landed: // it came at the last moment
		return o, nil
	default:
		return outcome{}, waitError(ctx, call)
	}
}

// begin puts a new call in flight.
func (s *session) begin() (*flight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, ferrule.Errorf(ferrule.Offline, "the link is gone: %w", s.ended)
	}
	if s.flight != nil {
		return nil, ferrule.Errorf(ferrule.Busy, "the device is at another call")
	}
	s.flight = &flight{id: s.ids.take(), landed: make(chan outcome, 1)}
	return s.flight, nil
}

// end takes a call out of flight. If its answer comes yet, it is dropped by its id.
func (s *session) end(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight == f {
		s.flight = nil
	}
}

// land gives the call in flight, if there is one, its outcome. It is called with
// mu held.
func (s *session) land(o outcome) {
	if s.flight != nil {
		s.flight.landed <- o
		s.flight = nil
	}
}

// Run implements dialect.Session.
func (s *session) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.link.Close() })
	defer stop()
	s.startBeat()
	for {
		m, err := s.link.Recv(context.Background())
		switch {
		case err == nil:
			s.read(ctx, m)
		case errors.Is(err, transport.ErrTooLong):
			s.mu.Lock()
			s.land(outcome{err: fmt.Errorf("its answer was dropped: %w", err)})
			s.mu.Unlock()
		default:
			s.finish(err)
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// finish gives the call in flight its outcome, closes the link, and waits for
// whoever is sending.
func (s *session) finish(err error) {
	s.mu.Lock()
	s.ended = err
	s.land(outcome{err: err})
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.link.Close()
	s.sending <- struct{}{}
	<-s.sending
}

// startBeat has something sent now and then. A timer does it, not a goroutine:
// there may be very many sessions. MQTT has a beat of its own.
func (s *session) startBeat() {
	if s.link.Info().Transport == "mqtt" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.dialect.firstBeat(), s.keepAlive)
}

// keepAlive is called by the timer. An answer is not awaited: whether the device
// is still there, the medium finds out.
func (s *session) keepAlive() {
	next := beat
	select {
	case s.sending <- struct{}{}:
		if idle := time.Since(s.sent); idle < beat {
			next = beat - idle
		} else {
			s.sent = time.Now()
			s.link.Send(context.Background(), transport.Message{Data: initialized}) // Run learns that the link broke
		}
		<-s.sending
	default: // somebody is sending, which is as good
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.timer.Reset(next)
	}
}

// read does what a message asks for.
func (s *session) read(ctx context.Context, m transport.Message) {
	switch d := decode(m); d.sort {
	case sortAnswer:
		s.take(d.answer)
	case sortNotification:
		s.tell(d)
	case sortHello:
		s.reply(ctx, func(ctx context.Context) error { return s.answerHello(ctx, d.hello) })
	case sortPing:
		s.reply(ctx, func(ctx context.Context) error { return s.send(ctx, pong) })
	default:
		s.ignore(d)
	}
}

// replyWait bounds what is said unasked, so that reading goes on.
const replyWait = 2 * time.Second

// reply sends something beside calls. If that fails, the link breaks or the device
// says it again.
func (s *session) reply(ctx context.Context, send func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, replyWait)
	defer cancel()
	if err := send(ctx); err != nil {
		s.note("not answered: %v", err)
	}
}

// ignore remarks on what has no answer.
func (s *session) ignore(d said) {
	switch d.sort {
	case sortNoise:
		s.note("noise: this cannot be read")
	case sortRequest:
		s.note("dropped: the device asks for %s", ferrule.Clean(d.word, 64))
	case sortNotification:
		s.note("dropped: a notification before the greeting was over")
	case sortOther, sortSound: // a voice device says much that is not for us
	}
}

// take hands over one answer.
func (s *session) take(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.flight == nil || s.flight.id != a.id:
		s.note("dropped: nobody waits for answer %d", a.id)
	case a.broken:
		s.land(outcome{err: errors.New("it answered, and the answer cannot be read")})
	default:
		s.land(outcome{answer: a})
	}
}

// sendError translates a failed write.
func sendError(ctx context.Context, call *ferrule.Call, err error) error {
	switch {
	case !errors.Is(err, transport.ErrUnsent):
		return ferrule.Errorf(ferrule.Unanswered, "the link to %s broke while %s was being sent: %w", call.Device, call.Tool, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled before %s was sent", call.Tool)
	case ctx.Err() != nil:
		return ferrule.Errorf(ferrule.Busy, "the deadline passed before %s could be sent", call.Tool)
	}
	return ferrule.Errorf(ferrule.Offline, "%s could not be reached: %w", call.Device, err)
}

// waitError says why a call that was sent is waited for no longer.
func waitError(ctx context.Context, call *ferrule.Call) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while %s was at %s", call.Device, call.Tool).AfterSend()
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s did not answer %s within %v", call.Device, call.Tool, call.Timeout)
}
