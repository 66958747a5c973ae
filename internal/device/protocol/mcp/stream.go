package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// event is an event of a stream.
type event struct {
	name, id string
	data     []byte
	retry    time.Duration
}

// maxEvent is the length of the longest event. The link bounds them as well.
const maxEvent = 8 << 20

// events reads a stream, and gives each event to take until that returns false. It
// returns nil at the end of the stream, and then, too.
func events(body io.Reader, take func(event) bool) error {
	lines := eventLines{in: bufio.NewReader(body)}
	var e event
	var any bool
	for size := 0; ; {
		line, err := lines.next(maxEvent - size)
		size += len(line)
		switch {
		case line != "":
			any = e.set(line) || any
		case err == nil:
			if any && !take(e) {
				return nil
			}
			e, any, size = event{}, false, 0
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil // an event that has no end is none
		case err != nil:
			return err
		}
	}
}

// eventLines reads lines, which end with CR, LF or both.
type eventLines struct {
	in   *bufio.Reader
	pair bool // the last one ended with CR, and an LF would belong to it
}

// next is the next line without its end. No more of it is kept than there is room for.
func (l *eventLines) next(room int) (string, error) {
	var line []byte
	for {
		if _, err := l.in.Peek(1); err != nil {
			return string(line), err
		}
		come, _ := l.in.Peek(l.in.Buffered())
		if l.pair && come[0] == '\n' {
			l.pair = false
			l.in.Discard(1)
			continue
		}
		end := bytes.IndexAny(come, "\r\n")
		l.pair = end >= 0 && come[end] == '\r'
		part := come
		if end >= 0 {
			part = come[:end]
		}
		if len(line)+len(part) > room {
			return "", fmt.Errorf("%w: an event has more than %d bytes", transport.ErrTooLong, maxEvent)
		}
		line = append(line, part...)
		if end >= 0 {
			l.in.Discard(end + 1)
			return string(line), nil
		}
		l.in.Discard(len(come))
	}
}

// maxEventID is the length of the longest id of an event.
const maxEventID = 512

// set takes a line of an event, and tells whether it says anything.
func (e *event) set(line string) bool {
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "event":
		e.name = value
	case "data":
		if e.data != nil {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
	case "id":
		if len(value) <= maxEventID && !strings.ContainsAny(value, "\x00\r") {
			e.id = value
		}
	case "retry":
		if ms, err := strconv.Atoi(value); err == nil && ms >= 0 && ms < 1<<30 {
			e.retry = time.Duration(ms) * time.Millisecond
		}
	default:
		return false
	}
	return true
}

// The pauses before a stream is opened again.
const (
	shortest = 100 * time.Millisecond
	usual    = time.Second
	longest  = time.Minute
)

// mark is how far a stream was read.
type mark struct {
	id    string
	pause time.Duration
}

// read gives what a stream says to the session, until the answer to a request comes,
// if there is one, or the stream ends.
func (p *posts) read(ctx context.Context, body io.Reader, request string, m *mark) (answer message, found bool, err error) {
	err = events(body, func(e event) bool {
		if e.id != "" {
			m.id = e.id
		}
		if e.retry > 0 {
			m.pause = min(max(e.retry, shortest), longest)
		}
		if e.name != "" && e.name != "message" {
			return true // of an older transport
		}
		for _, said := range decode(e.data) {
			if request != "" && said.answers(request) {
				answer, found = said, true
				return false
			}
			p.session.hear(ctx, said)
		}
		return true
	})
	return answer, found, err
}

// follow reads the answer to a request that comes in a stream. A stream that ends
// before, and has a place to go on from, is fetched until the answer is there:
// nothing is asked for again.
func (p *posts) follow(ctx context.Context, r request, response *http.Response) (message, error) {
	at := mark{pause: usual}
	answer, found, err := p.read(ctx, response.Body, r.id, &at)
	p.recognize(r.method, response)
	response.Body.Close()
	if found {
		return answer, nil
	}
	if at.id == "" || p.session.isModern() || ctx.Err() != nil {
		return message{}, &trouble{sent: true, silent: ctx.Err() != nil, err: cut(err)}
	}
	release, ok := p.stream.take(ctx)
	if !ok {
		return message{}, &trouble{sent: true, silent: true, err: ctx.Err()}
	}
	defer release()
	for wait(ctx, at.pause) {
		if answer, found, err = p.fetch(ctx, r.id, &at); found {
			return answer, nil
		}
		if err != nil {
			return message{}, &trouble{sent: true, err: err}
		}
	}
	return message{}, &trouble{sent: true, silent: true, err: ctx.Err()}
}

// cut says that a stream ended too early.
func cut(err error) error {
	if err != nil {
		return fmt.Errorf("the stream with its answer broke off: %w", err)
	}
	return errors.New("the stream ended without its answer")
}

func wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// fetch reads what has come since a mark. The error is why there will be no more.
func (p *posts) fetch(ctx context.Context, request string, at *mark) (message, bool, error) {
	response, err := p.get(ctx, at.id)
	if err != nil {
		return message{}, false, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound && p.sessionID() != "":
		p.session.fail(errForgotten)
		return message{}, false, errForgotten
	case response.StatusCode != http.StatusOK || !isStream(response):
		return message{}, false, fmt.Errorf("its answer cannot be fetched: %w", statusError(response.StatusCode, nil))
	}
	answer, found, _ := p.read(ctx, response.Body, request, at) // a stream that breaks off is fetched again
	return answer, found, nil
}

// get asks for a stream. Doing so twice does no harm.
func (p *posts) get(ctx context.Context, last string) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return nil, err
	}
	out.Close = true // it is read for as long as there is something to say
	out.Header.Set("Accept", "text/event-stream")
	if last != "" {
		out.Header.Set(lastHeader, last)
	}
	p.identify(out, "", "")
	return p.carrier.RoundTrip(out)
}

// stream is what a device of the older era says by itself. There is one at a time, and
// it makes room for fetching an answer.
type stream struct {
	lane chan struct{} // holds one while somebody gets

	mu  sync.Mutex
	end context.CancelFunc // of the device's own; nil if it is not read
}

// interrupt ends the device's own stream for now.
func (s *stream) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end()
	}
}

// take waits until no other stream is read; the device's own is ended for it.
func (s *stream) take(ctx context.Context) (release func(), ok bool) {
	for {
		s.interrupt()
		select {
		case s.lane <- struct{}{}:
			return func() { <-s.lane }, true
		case <-ctx.Done():
			return nil, false
		case <-time.After(shortest):
		}
	}
}

// run listens to the device until ctx ends, or it is certain that there is no stream.
func (s *stream) run(ctx context.Context, p *posts) {
	at := mark{pause: usual}
	opened, pause := false, time.Duration(0)
	for ctx.Err() == nil {
		over, err := s.once(ctx, p, &at, opened)
		switch {
		case ctx.Err() != nil:
			return
		case over:
			p.session.note("it has no stream of its own: %v", err)
			return
		case err != nil && errors.Is(err, transport.ErrUnsent):
			p.session.fail(err)
			return
		}
		opened = opened || err == nil
		if pause = nextPause(pause, at.pause, err); !wait(ctx, pause) {
			return
		}
	}
}

// nextPause is how long to wait after a pause of last: what the device wants, and ever
// longer while it will not have it.
func nextPause(last, wanted time.Duration, err error) time.Duration {
	if err == nil {
		return wanted
	}
	return min(max(2*last, wanted), longest)
}

// once listens until the stream ends. It is over if there is none.
func (s *stream) once(ctx context.Context, p *posts, at *mark, opened bool) (over bool, err error) {
	select {
	case s.lane <- struct{}{}:
		defer func() { <-s.lane }()
	case <-ctx.Done():
		return true, ctx.Err()
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.set(end)
	defer s.set(nil)
	response, err := p.get(ctx, at.id)
	if response != nil {
		defer response.Body.Close() // whoever waits for a stream waits for this
	}
	if ctx.Err() != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch status := response.StatusCode; {
	case status == http.StatusNotFound && p.sessionID() != "" && opened, status == http.StatusBadRequest && opened:
		p.session.fail(errForgotten) // it was there before
		return true, errForgotten
	case status >= 500 || status == http.StatusTooManyRequests:
		return false, statusError(status, nil)
	case status != http.StatusOK || !isStream(response):
		return true, statusError(status, nil)
	case opened && at.id == "":
		p.session.missed() // it cannot go on from where it ended
	}
	p.read(ctx, response.Body, "", at) // however it ends, it is opened again
	return false, nil
}

func (s *stream) set(end context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = end
}
