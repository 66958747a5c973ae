package mcpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// session is the conversation with one board: Invoke sends and waits, Run reads
// and hands over. At most one request is in flight.
type session struct {
	link  transport.Link
	limit int // bytes of the longest request; zero for any

	// landed gets the outcome of the request in flight, once.
	landed chan outcome

	mu      sync.Mutex
	ids     ids
	flight  int       // id of the request that waits for its answer; zero if none does
	ended   error     // why the link is gone, once it is
	mangled time.Time // when the board last could not read a request
}

// outcome is an answer, or why none will come.
type outcome struct {
	answer answer
	err    error
}

func newSession(link transport.Link, ids ids, limit int) *session {
	return &session{link: link, ids: ids, limit: limit, landed: make(chan outcome, 1)}
}

// Invoke implements dialect.Session.
func (s *session) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	params := call.Args
	if bytes.ContainsAny(params, " \t\r\n") {
		var compact bytes.Buffer
		if err := json.Compact(&compact, params); err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "the arguments are no JSON: %w", err)
		}
		params = compact.Bytes()
	}
	if err := s.pause(ctx); err != nil {
		return nil, err
	}
	id, err := s.begin()
	if err != nil {
		return nil, err
	}
	line := request(id, call.Tool, params)
	if n := len(line); s.limit > 0 && n > s.limit {
		s.end(id, false)
		return nil, ferrule.Errorf(ferrule.Invalid, "the request would be %d bytes long, and %s reads %d: it would be cut", n, call.Device, s.limit).
			WithHint("use shorter arguments")
	}
	if err := s.link.Send(ctx, transport.Message{Data: line}); err != nil {
		sent := !errors.Is(err, transport.ErrUnsent)
		s.end(id, sent)
		return nil, sendError(ctx, call, err, sent)
	}
	select {
	case o := <-s.landed:
		return result(call, o)
	case <-ctx.Done():
	}
	s.end(id, true)
	select {
	case o := <-s.landed: // it came at the last moment
		return result(call, o)
	default:
		return nil, waitError(ctx, call)
	}
}

// pause leaves the board in peace for a moment after it could not read a
// request: of one request in pieces, each piece is answered with such an error.
func (s *session) pause(ctx context.Context) error {
	for {
		s.mu.Lock()
		wait := quiet - time.Since(s.mangled)
		s.mu.Unlock()
		if wait <= 0 {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			code := ferrule.Busy
			if errors.Is(ctx.Err(), context.Canceled) {
				code = ferrule.Cancelled
			}
			return ferrule.Errorf(code, "the call ended while the board was getting over a request that it could not read")
		}
	}
}

// begin puts a new request in flight.
func (s *session) begin() (id int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return 0, ferrule.Errorf(ferrule.Offline, "the link is gone: %w", s.ended)
	}
	if s.flight != 0 {
		return 0, ferrule.Errorf(ferrule.Busy, "the board is at another call")
	}
	select {
	case <-s.landed: // the outcome of a request that could not be sent
	default:
	}
	s.flight = s.ids.take()
	return s.flight, nil
}

// end takes a request out of flight; if it was sent, its answer may yet come.
func (s *session) end(id int, sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != id {
		return
	}
	s.flight = 0
	if sent {
		s.ids.giveUp(id)
	}
}

// land gives the request in flight, if there is one, its outcome. It is called
// with mu held.
func (s *session) land(o outcome) {
	if s.flight != 0 {
		s.flight = 0
		s.landed <- o
	}
}

// abandon ends the request in flight, if there is one, without its answer, which
// may yet come. It is called with mu held.
func (s *session) abandon(err error) {
	if s.flight != 0 {
		s.ids.giveUp(s.flight)
	}
	s.land(outcome{err: err})
}

// Run implements dialect.Session.
func (s *session) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.link.Close() })
	defer stop()
	for {
		m, err := s.link.Recv(context.Background())
		switch {
		case err == nil:
			s.read(m.Data)
		case errors.Is(err, transport.ErrTooLong):
			s.mu.Lock()
			s.abandon(fmt.Errorf("its answer was dropped: %w", err))
			s.mu.Unlock()
		default:
			s.mu.Lock()
			s.ended = err
			s.abandon(err)
			s.mu.Unlock()
			s.link.Close()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// read hands the answers in a line to whom they belong.
func (s *session) read(line []byte) {
	if a, ok := usualAnswer(line); ok {
		s.take(a)
		return
	}
	answers := scan(line)
	if len(answers) == 0 {
		transport.Note(s.link, "noise: no answer in this line")
	}
	for _, a := range answers {
		s.take(a)
	}
}

// take hands over one answer.
func (s *session) take(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.id != 0 && a.id == s.flight:
		s.land(outcome{answer: a})
	case a.mangled():
		s.mangled = time.Now()
		s.abandon(fmt.Errorf("it could not read a request, probably this one: %s", a.err))
	case s.ids.answered(a.id):
		transport.Note(s.link, "dropped: answer %d came too late", a.id)
	default:
		transport.Note(s.link, "dropped: nobody asked for answer %d", a.id)
	}
}

// result translates what a device said.
func result(call *ferrule.Call, o outcome) (*ferrule.Result, error) {
	if o.err != nil {
		return nil, ferrule.Errorf(ferrule.Unanswered, "%s did not answer %s: %w", call.Device, call.Tool, o.err)
	}
	if e := o.answer.err; e != nil {
		switch e.Code {
		case codeInvalidRequest, codeNoMethod, codeBadParams:
			return nil, ferrule.Errorf(ferrule.Refused, "%s refused %s: %s", call.Device, call.Tool, e)
		}
		return nil, ferrule.Errorf(ferrule.Failed, "%s failed at %s: %s", call.Device, call.Tool, e)
	}
	if reason, ok := noBuffer(call.Tool, o.answer.result); ok {
		return nil, ferrule.Errorf(ferrule.Refused, "%s has no buffer for this pin: %s", call.Device, ferrule.Clean(reason, 256)).
			WithHint("get_pin_summary and adc_read may work on it")
	}
	return &ferrule.Result{Value: o.answer.result}, nil
}

// noBuffer finds the refusal that get_pin_buffer clothes as a success.
func noBuffer(tool string, result []byte) (reason string, ok bool) {
	if tool != "get_pin_buffer" || !bytes.Contains(result, []byte("buffer_available")) {
		return "", false
	}
	var r struct {
		Available *bool  `json:"buffer_available"`
		Reason    string `json:"reason"`
	}
	if err := json.Unmarshal(result, &r); err != nil || r.Available == nil || *r.Available {
		return "", false
	}
	return r.Reason, true
}

// sendError translates a failed write.
func sendError(ctx context.Context, call *ferrule.Call, err error, sent bool) error {
	switch {
	case sent:
		return ferrule.Errorf(ferrule.Unanswered, "the link to %s broke while %s was being sent: %w", call.Device, call.Tool, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled before %s was sent", call.Tool)
	case ctx.Err() != nil:
		return ferrule.Errorf(ferrule.Busy, "the deadline passed before %s could be sent", call.Tool)
	}
	return ferrule.Errorf(ferrule.Offline, "%s could not be reached: %w", call.Device, err)
}

// waitError says why a request that was sent is waited for no longer.
func waitError(ctx context.Context, call *ferrule.Call) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while %s was at %s", call.Device, call.Tool).AfterSend()
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s did not answer %s within %v", call.Device, call.Tool, call.Timeout)
}
