package xiaozhi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// maxRequest is the longest request in bytes. Firmware has no limit, but little memory.
const maxRequest = 8 << 10

// beat is the longest time without sending. After two minutes without a message, a
// device drops its WebSocket.
const beat = 50 * time.Second

// session is the connection to one device: Invoke sends and waits, Run reads. At most
// one call is pending. There may be very many sessions, and most are idle, so memory
// for a call is allocated by the call.
type session struct {
	protocol *Protocol
	link     transport.Link
	token    string // for the device's pictures
	limit    int    // longest request in bytes
	notify   func(method string, params json.RawMessage)
	rate     ratelimit.Limiter // of notifications
	pending  jsonrpc.Pending[int, answer]

	sending chan struct{} // holds one element while a goroutine sends
	sent    time.Time     // when the last message was sent; guarded by sending

	mu    sync.Mutex // taken before that of pending
	ids   jsonrpc.IDs
	ended error       // why the link ended; nil before
	timer *time.Timer // of the next beat; nil if none is needed
}

type pendingRequest = jsonrpc.Request[int, answer]

func newSession(p *Protocol, link transport.Link) *session {
	limit := maxRequest
	if safe := link.Info().SafeWrite; safe > 0 {
		limit = min(limit, safe)
	}
	return &session{protocol: p, link: link, limit: limit, ids: jsonrpc.IDs{Next: p.firstID(), Max: maxID}, sending: make(chan struct{}, 1)}
}

func (s *session) note(format string, args ...any) { transport.Note(s.link, format, args...) }

// send sends one message, after those that are being sent.
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

// Invoke implements protocol.Session.
func (s *session) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	params, err := callParams(call.Tool, call.Args)
	if err != nil {
		return nil, err
	}
	r, err := s.begin(call)
	if err != nil {
		return nil, err
	}
	defer r.Forget()
	data := request(r.ID, "tools/call", params)
	if n := len(data); n > s.limit {
		return nil, jsonrpc.TooLong(call, n, s.limit)
	}
	stop := s.awaitPictures()
	a, err := s.exchange(ctx, call, r, data)
	pictures := stop()
	if err != nil {
		return nil, err
	}
	return result(call, a, pictures)
}

// awaitPictures collects the pictures that arrive during a call.
func (s *session) awaitPictures() (stop func() []ferrule.Content) {
	if s.token == "" {
		return func() []ferrule.Content { return nil }
	}
	return s.protocol.parts.Pictures.Await(s.token)
}

// exchange sends a request and waits for its answer.
func (s *session) exchange(ctx context.Context, call *ferrule.Call, r *pendingRequest, data []byte) (answer, error) {
	if err := s.send(ctx, data); err != nil {
		return answer{}, jsonrpc.SendError(ctx, call, err, !errors.Is(err, transport.ErrUnsent))
	}
	a, err := r.Wait(ctx, func() { r.Forget() })
	switch {
	case errors.Is(err, jsonrpc.ErrNoAnswer):
		return answer{}, jsonrpc.WaitError(ctx, call)
	case err != nil:
		return answer{}, jsonrpc.NoAnswer(call, err)
	}
	return a, nil
}

// begin adds a pending request.
func (s *session) begin(call *ferrule.Call) (*pendingRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, jsonrpc.Gone(s.ended)
	}
	if s.pending.Len() > 0 {
		return nil, jsonrpc.Busy(call)
	}
	return s.pending.Add(s.ids.Take()), nil
}

// Run implements protocol.Session.
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
			s.pending.FailAll(fmt.Errorf("the answer was dropped: %w", err))
		default:
			s.finish(err)
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// finish fails the pending call, closes the link, and waits for the goroutine that is
// sending.
func (s *session) finish(err error) {
	s.mu.Lock()
	s.ended = err
	s.pending.FailAll(err)
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.link.Close()
	s.sending <- struct{}{}
	<-s.sending
}

// startBeat starts the keep-alive. It uses a timer instead of a goroutine, because there
// may be very many sessions. MQTT has its own keep-alive.
func (s *session) startBeat() {
	if s.link.Info().Transport == "mqtt" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.protocol.firstBeat(), s.keepAlive)
}

// keepAlive is called by the timer. It does not wait for an answer: the transport
// detects a dead connection.
func (s *session) keepAlive() {
	next := beat
	select {
	case s.sending <- struct{}{}:
		if idle := time.Since(s.sent); idle < beat {
			next = beat - idle
		} else {
			s.sent = time.Now()
			s.link.Send(context.Background(), transport.Message{Data: initialized}) // Run notices a broken link
		}
		<-s.sending
	default: // another message is being sent, which is as good
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.timer.Reset(next)
	}
}

// read handles one message.
func (s *session) read(ctx context.Context, m transport.Message) {
	switch msg := decode(m); msg.kind {
	case kindAnswer:
		s.take(msg.answer)
	case kindNotification:
		s.notification(msg)
	case kindHello:
		s.reply(ctx, func(ctx context.Context) error { return s.answerHello(ctx, msg.hello) })
	case kindPing:
		s.reply(ctx, func(ctx context.Context) error { return s.send(ctx, pong) })
	default:
		s.ignore(msg)
	}
}

// replyWait limits how long a reply may block reading.
const replyWait = 2 * time.Second

// reply answers a message of the device. If that fails, the link breaks or the device
// sends its message again.
func (s *session) reply(ctx context.Context, send func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, replyWait)
	defer cancel()
	if err := send(ctx); err != nil {
		s.note("not answered: %v", err)
	}
}

// ignore notes a message that is not handled.
func (s *session) ignore(m message) {
	switch m.kind {
	case kindNoise:
		s.note("noise: not a message")
	case kindRequest:
		s.note("dropped: request %s, which is not supported", ferrule.Clean(m.name, 64))
	case kindNotification:
		s.note("dropped: notification during the greeting")
	case kindOther, kindSound: // usual for a voice device
	}
}

// take delivers one answer.
func (s *session) take(a answer) {
	delivered := false
	if a.broken {
		delivered = s.pending.Fail(a.id, errors.New("its answer cannot be decoded"))
	} else {
		delivered = s.pending.Answer(a.id, a)
	}
	if !delivered {
		s.note("dropped: answer %d has no request", a.id)
	}
}
