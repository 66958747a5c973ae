package httpclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// eventStream is the body of a text/event-stream response. It limits the length of
// each event and the rate, and traces the events.
type eventStream struct {
	link    *link
	body    io.ReadCloser
	release func()                // ends the request
	reason  func(err error) error // returns why the stream ended
	// drain reads the rest of the body after Close and then calls end, so that the
	// connection can be reused; nil if it is not reused.
	drain  func(body io.Reader, end func())
	closed sync.Once

	event []byte // the current event so far
	last  byte   // the previous byte
	empty bool   // the current line is empty so far
	err   error  // the error that ended the stream

	throttle ratelimit.Throttle
}

// The sustained rate of a stream in bytes per second, and the burst. Each event costs
// transport.LineCost in addition. A device that sends more is read more slowly.
const (
	streamRate  = 16 << 20
	streamBurst = 4 << 20
)

// Read implements io.Reader.
func (s *eventStream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.body.Read(p)
	s.throttle.Spend(n, streamRate, streamBurst)
	if within := s.scan(p[:n]); within < n {
		n, err = within, fmt.Errorf("%w: event limit is %d bytes", transport.ErrTooLong, s.limit())
		s.link.Note("stream closed: " + err.Error())
	} else if err != nil && !errors.Is(err, io.EOF) {
		err = s.reason(err)
	}
	if err != nil {
		s.err = err
		s.flush("incomplete")
		s.Close()
	}
	return n, err
}

// Close implements io.Closer.
func (s *eventStream) Close() error {
	s.closed.Do(func() {
		if s.drain == nil || s.err != nil {
			s.end()
			return
		}
		s.drain(s.body, s.end)
	})
	return nil
}

func (s *eventStream) end() {
	s.body.Close()
	s.release()
}

func (s *eventStream) limit() int { return s.link.cfg.MaxMessage }

// scan finds the events in p and returns how many bytes are within the limit. An
// empty line ends an event; a line ends with CR, LF or CRLF.
func (s *eventStream) scan(p []byte) int {
	for i, b := range p {
		ends := b == '\n' || b == '\r'
		pair := b == '\n' && s.last == '\r'
		s.last = b
		switch {
		case pair:
		case ends && s.empty:
			s.throttle.Spend(transport.LineCost, streamRate, streamBurst)
			s.flush("")
		case ends:
			s.empty = true
			s.event = append(s.event, '\n')
		default:
			s.empty = false
			s.event = append(s.event, b)
		}
		if len(s.event) > s.limit() {
			return i
		}
	}
	return len(p)
}

// flush traces the current event and starts a new one.
func (s *eventStream) flush(note string) {
	if event := bytes.TrimSpace(s.event); len(event) > 0 {
		s.link.Trace(transport.In, transport.Message{Channel: "event", Data: event}, note)
	}
	s.event = s.event[:0]
	if cap(s.event) > 4<<10 {
		s.event = nil // a stream is idle most of the time
	}
}
