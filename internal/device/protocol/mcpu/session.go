package mcpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// session is the connection to one board: Invoke sends and waits, Run reads. At most
// one request is pending.
type session struct {
	link    transport.Link
	limit   int // longest request in bytes; 0 for no limit
	pending jsonrpc.Pending[int, answer]

	mu      sync.Mutex // taken before that of pending
	ids     jsonrpc.IDs
	ended   error     // why the link ended; nil before
	mangled time.Time // when the board last could not parse a request
}

type pendingRequest = jsonrpc.Request[int, answer]

func newSession(link transport.Link, ids jsonrpc.IDs, limit int) *session {
	return &session{link: link, ids: ids, limit: limit}
}

// Invoke implements protocol.Session.
func (s *session) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	params := call.Args
	if bytes.ContainsAny(params, " \t\r\n") {
		var compact bytes.Buffer
		if err := json.Compact(&compact, params); err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "arguments are not JSON: %w", err)
		}
		params = compact.Bytes()
	}
	if err := s.pause(ctx); err != nil {
		return nil, err
	}
	r, err := s.begin(call)
	if err != nil {
		return nil, err
	}
	line := request(r.ID, call.Tool, params)
	if n := len(line); s.limit > 0 && n > s.limit {
		s.end(r, false)
		return nil, jsonrpc.TooLong(call, n, s.limit)
	}
	if err := s.link.Send(ctx, transport.Message{Data: line}); err != nil {
		sent := !errors.Is(err, transport.ErrUnsent)
		s.end(r, sent)
		return nil, jsonrpc.SendError(ctx, call, err, sent)
	}
	a, err := r.Wait(ctx, func() { s.end(r, true) })
	switch {
	case errors.Is(err, jsonrpc.ErrNoAnswer):
		return nil, jsonrpc.WaitError(ctx, call)
	case err != nil:
		return nil, jsonrpc.NoAnswer(call, err)
	}
	return result(call, a)
}

// pause gives the board time after it could not parse a request. If that request
// arrived in fragments, each fragment causes another such error.
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
			return ferrule.Errorf(code, "the call ended while waiting for the board to recover from a request that it could not parse")
		}
	}
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

// end forgets a request. If it was sent, its answer may still arrive.
func (s *session) end(r *pendingRequest, sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Forget() && sent {
		s.ids.Abandon(r.ID)
	}
}

// abandon fails the pending request, if there is one. Its answer may still arrive. It
// is called with mu held.
func (s *session) abandon(err error) {
	for _, id := range s.pending.FailAll(err) {
		s.ids.Abandon(id)
	}
}

// Run implements protocol.Session.
func (s *session) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.link.Close() })
	defer stop()
	for {
		m, err := s.link.Recv(context.Background())
		switch {
		case err == nil:
			s.read(m.Data)
			runtime.Gosched() // the caller has the answer before this waits for the next line
		case errors.Is(err, transport.ErrTooLong):
			s.mu.Lock()
			s.abandon(fmt.Errorf("the answer was dropped: %w", err))
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

// read handles one line.
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

// take delivers one answer.
func (s *session) take(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.id != 0 && s.pending.Answer(a.id, a):
	case a.mangled():
		s.mangled = time.Now()
		s.abandon(fmt.Errorf("it could not parse a request, probably this one: %w", a.err))
	case s.ids.Late(a.id):
		transport.Note(s.link, "dropped: answer %d is late", a.id)
	default:
		transport.Note(s.link, "dropped: answer %d has no request", a.id)
	}
}

// result returns what an answer means for the call.
func result(call *ferrule.Call, a answer) (*ferrule.Result, error) {
	if a.err != nil {
		return nil, jsonrpc.AnswerError(call, a.err, a.err.Rejected())
	}
	if a.empty() {
		return nil, ferrule.Errorf(ferrule.Failed, "%s answered %s with neither a result nor an error", call.Device, call.Tool).
			WithHint("the firmware is at fault: its handler of %s must write a result or an error", call.Tool)
	}
	if reason, ok := noBuffer(call.Tool, a.result); ok {
		return nil, ferrule.Errorf(ferrule.Refused, "%s has no buffer for this pin: %s", call.Device, ferrule.Clean(reason, 256)).
			WithHint("get_pin_summary and adc_read may work on it")
	}
	return &ferrule.Result{Value: a.result}, nil
}

// noBuffer recognizes the refusal of get_pin_buffer, which firmware sends as a success.
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
