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

// event is one server-sent event.
type event struct {
	name, id string
	data     []byte
	retry    time.Duration
}

// maxEvent is the length of the longest event. The link has a limit as well.
const maxEvent = 8 << 20

// events reads a stream, and calls take for each event until it returns false. It returns
// nil then, and at the end of the stream.
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
			return nil // an incomplete event is dropped
		case err != nil:
			return err
		}
	}
}

// eventLines reads lines that end with CR, LF or both.
type eventLines struct {
	in   *bufio.Reader
	pair bool // the last line ended with CR: a following LF belongs to it
}

// next returns the next line without its end. It fails if the line is longer than room.
func (l *eventLines) next(room int) (string, error) {
	var line []byte
	for {
		if _, err := l.in.Peek(1); err != nil {
			return string(line), err
		}
		chunk, _ := l.in.Peek(l.in.Buffered())
		if l.pair && chunk[0] == '\n' {
			l.pair = false
			l.in.Discard(1)
			continue
		}
		end := bytes.IndexAny(chunk, "\r\n")
		l.pair = end >= 0 && chunk[end] == '\r'
		part := chunk
		if end >= 0 {
			part = chunk[:end]
		}
		if len(line)+len(part) > room {
			return "", fmt.Errorf("%w: event is longer than %d bytes", transport.ErrTooLong, maxEvent)
		}
		line = append(line, part...)
		if end >= 0 {
			l.in.Discard(end + 1)
			return string(line), nil
		}
		l.in.Discard(len(chunk))
	}
}

// maxEventID is the length of the longest event id.
const maxEventID = 512

// set adds a line to the event, and reports whether the field is known.
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

// The pause before a stream is opened again.
const (
	minRetry     = 100 * time.Millisecond
	defaultRetry = time.Second
	maxRetry     = time.Minute
)

// position is how far a stream was read.
type position struct {
	id    string // of the last event
	pause time.Duration
}

// read passes the messages of a stream to the session until the stream ends. If request
// is not empty, it stops at the answer to that request.
func (c *httpConn) read(ctx context.Context, body io.Reader, request string, at *position) (answer message, found bool, err error) {
	err = events(body, func(e event) bool {
		if e.id != "" {
			at.id = e.id
		}
		if e.retry > 0 {
			at.pause = min(max(e.retry, minRetry), maxRetry)
		}
		if e.name != "" && e.name != "message" {
			return true // of an older transport
		}
		for _, m := range decode(e.data) {
			if request != "" && m.answers(request) {
				answer, found = m, true
				return false
			}
			m.aside = request == ""
			c.session.receive(ctx, m)
		}
		return true
	})
	return answer, found, err
}

// readAnswer reads the answer to a request from a stream. If the stream ends before, and
// its events have ids, the rest is fetched until the answer arrives. The request is not
// sent again.
func (c *httpConn) readAnswer(ctx context.Context, r request, response *http.Response) (message, error) {
	at := position{pause: defaultRetry}
	answer, found, err := c.read(ctx, response.Body, r.id, &at)
	c.checkSession(r.method, response)
	response.Body.Close()
	if found {
		return answer, nil
	}
	if at.id == "" || c.session.isModern() || ctx.Err() != nil {
		return message{}, &requestError{sent: true, silent: ctx.Err() != nil, err: streamEnded(err)}
	}
	release, ok := c.stream.acquire(ctx)
	if !ok {
		return message{}, &requestError{sent: true, silent: true, err: ctx.Err()}
	}
	defer release()
	for pauseFor(ctx, at.pause) {
		if answer, found, err = c.fetch(ctx, r.id, &at); found {
			return answer, nil
		}
		if err != nil {
			return message{}, &requestError{sent: true, err: err}
		}
	}
	return message{}, &requestError{sent: true, silent: true, err: ctx.Err()}
}

// streamEnded is the error of a stream that ended before the answer.
func streamEnded(err error) error {
	if err != nil {
		return fmt.Errorf("the stream broke before the answer: %w", err)
	}
	return errors.New("the stream ended before the answer")
}

// pauseFor waits, and reports whether ctx is still alive.
func pauseFor(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// fetch reads the stream from a position on. An error is final.
func (c *httpConn) fetch(ctx context.Context, request string, at *position) (message, bool, error) {
	response, err := c.get(ctx, at.id)
	if err != nil {
		return message{}, false, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound && c.sessionID() != "":
		c.session.fail(errSessionLost)
		return message{}, false, errSessionLost
	case response.StatusCode != http.StatusOK || !isStream(response):
		return message{}, false, fmt.Errorf("fetching the answer: %w", statusError(response.StatusCode, nil))
	}
	answer, found, _ := c.read(ctx, response.Body, request, at) // a broken stream is fetched again
	return answer, found, nil
}

// get opens a stream. It is safe to repeat.
func (c *httpConn) get(ctx context.Context, last string) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return nil, err
	}
	out.Close = true // the stream may last
	out.Header.Set("Accept", "text/event-stream")
	if last != "" {
		out.Header.Set(lastHeader, last)
	}
	c.setHeaders(out, "", "")
	return c.client.RoundTrip(out)
}

// stream is the notification stream of a legacy device. Only one stream is open at a
// time: fetching an answer interrupts this one.
type stream struct {
	lane chan struct{} // holds one element while a stream is open

	mu  sync.Mutex
	end context.CancelFunc // of the notification stream; nil if it is not open
}

// interrupt closes the notification stream for now.
func (s *stream) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end()
	}
}

// acquire waits until no stream is open. It interrupts the notification stream.
func (s *stream) acquire(ctx context.Context) (release func(), ok bool) {
	for {
		s.interrupt()
		select {
		case s.lane <- struct{}{}:
			return func() { <-s.lane }, true
		case <-ctx.Done():
			return nil, false
		case <-time.After(minRetry):
		}
	}
}

// run reads the notification stream until ctx ends, or the device turns out to have none.
func (s *stream) run(ctx context.Context, c *httpConn) {
	at := position{pause: defaultRetry}
	opened, pause := false, time.Duration(0)
	for ctx.Err() == nil {
		over, err := s.once(ctx, c, &at, opened)
		switch {
		case ctx.Err() != nil:
			return
		case over:
			c.session.note("no notification stream: %v", err)
			return
		case err != nil && errors.Is(err, transport.ErrUnsent):
			c.session.fail(err)
			return
		}
		opened = opened || err == nil
		if pause = nextPause(pause, at.pause, err); !pauseFor(ctx, pause) {
			return
		}
	}
}

// nextPause returns how long to wait after a pause of last: as the device requests, and
// twice as long after each error.
func nextPause(last, requested time.Duration, err error) time.Duration {
	if err == nil {
		return requested
	}
	return min(max(2*last, requested), maxRetry)
}

// once reads the stream until it ends. It returns over if the device has none.
func (s *stream) once(ctx context.Context, c *httpConn, at *position, opened bool) (over bool, err error) {
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
	response, err := c.get(ctx, at.id)
	if response != nil {
		defer response.Body.Close() // before the lane is free
	}
	if ctx.Err() != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch status := response.StatusCode; {
	case status == http.StatusNotFound && c.sessionID() != "" && opened, status == http.StatusBadRequest && opened:
		c.session.fail(errSessionLost) // the stream existed before
		return true, errSessionLost
	case status >= 500 || status == http.StatusTooManyRequests:
		return false, statusError(status, nil)
	case status != http.StatusOK || !isStream(response):
		return true, statusError(status, nil)
	case opened && at.id == "":
		c.session.notificationGap() // the stream cannot resume
	}
	c.read(ctx, response.Body, "", at) // it is opened again in any case
	return false, nil
}

func (s *stream) set(end context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = end
}
