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

// stream is the body of an answer that is a stream of events. No event is longer
// than a message may be.
type stream struct {
	link    *link
	body    io.ReadCloser
	release func()                // ends the request
	why     func(err error) error // says why it ended
	// rest reads what follows when it is closed, and then ends it; nil if nothing follows.
	rest   func(body io.Reader, end func())
	closed sync.Once

	event []byte // what has come of the event at hand
	last  byte   // the byte before
	empty bool   // the line at hand has no byte yet
	err   error  // why there is no more

	throttle ratelimit.Throttle
}

// How fast a stream is read in the long run, and at once. Each event costs as much as
// a line does on top. A device that sends more is read more slowly.
const (
	streamRate  = 16 << 20
	streamBurst = 4 << 20
)

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.body.Read(p)
	s.throttle.Spend(n, streamRate, streamBurst)
	if took := s.take(p[:n]); took < n {
		n, err = took, fmt.Errorf("%w: an event has more than %d bytes", transport.ErrTooLong, s.limit())
		s.link.Note("the stream was ended: " + err.Error())
	} else if err != nil && !errors.Is(err, io.EOF) {
		err = s.why(err)
	}
	if err != nil {
		s.err = err
		s.flush("broke off")
		s.Close()
	}
	return n, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.closed.Do(func() {
		if s.rest == nil || s.err != nil {
			s.end()
			return
		}
		s.rest(s.body, s.end)
	})
	return nil
}

func (s *stream) end() {
	s.body.Close()
	s.release()
}

func (s *stream) limit() int { return s.link.cfg.Message }

// take follows the events in what was read, and tells how much of it is within the
// limit. An empty line ends an event; a line ends with CR, LF or both.
func (s *stream) take(p []byte) int {
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

// flush shows an event to the tap.
func (s *stream) flush(note string) {
	if event := bytes.TrimSpace(s.event); len(event) > 0 {
		s.link.Saw(transport.In, transport.Message{Channel: "event", Data: event}, note)
	}
	s.event = s.event[:0]
	if cap(s.event) > 4<<10 {
		s.event = nil // a stream is idle most of the time
	}
}
