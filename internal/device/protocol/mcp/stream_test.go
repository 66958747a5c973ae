package mcp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// TestEvents: lines end with CR, LF or both, as in the standard, and comments do not count
// against the limit of an event.
func TestEvents(t *testing.T) {
	const lines = "event: message|id: 7|data: {|data: }||: ok||data: 2||data: has no end"
	for _, end := range []string{"\n", "\r", "\r\n"} {
		var got []string
		err := events(strings.NewReader(strings.ReplaceAll(lines, "|", end)), func(e event) bool {
			got = append(got, fmt.Sprintf("%s %s %q", e.name, e.id, e.data))
			return true
		})
		if want := `[message 7 "{\n}"   "2"]`; fmt.Sprint(got) != want || err != nil {
			t.Errorf("%q: got %s, %v", end, got, err)
		}
	}
	comment := ":" + strings.Repeat(" a comment", 1000) + "\n\n"
	kept := strings.NewReader(strings.Repeat(comment, 2*maxEvent/len(comment)) + "data: 1\n\n")
	count := 0
	if err := events(kept, func(event) bool { count++; return true }); err != nil || count != 1 {
		t.Errorf("after many comments: %d events, %v", count, err)
	}
}

// endless is a stream that repeats a text, and counts the bytes read.
type endless struct {
	text string
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, strings.Repeat(e.text, len(p)/len(e.text)))
	if e.read += n; e.read > 8*maxEvent {
		return 0, io.EOF
	}
	return n, nil
}

// TestEndlessEvents: an event without an end fails at the limit.
func TestEndlessEvents(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, text := range []string{"data", "data: " + long + "\n", "data: " + long + "\r", ": " + long + "\n"} {
		e := &endless{text: text}
		if err := events(e, func(event) bool { return true }); !errors.Is(err, transport.ErrTooLong) || e.read > 3*maxEvent {
			t.Errorf("%q: read %d bytes: %v", text, e.read, err)
		}
	}
	e := &endless{text: "data: x\r\r"}
	count := 0
	events(e, func(event) bool { count++; return count < 10 })
	if count != 10 || e.read > 1<<20 {
		t.Errorf("%d events, after %d bytes", count, e.read)
	}
}

// interrupted is a link whose stream is interrupted while it is being opened.
type interrupted struct {
	parrot
	session *session
	closed  bool
}

func (i *interrupted) HTTP() (string, http.RoundTripper) { return "http://board/mcp", i }

func (i *interrupted) RoundTrip(r *http.Request) (*http.Response, error) {
	i.session.conn.(*httpConn).stream.interrupt()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: i, Request: r}, nil
}

func (i *interrupted) Read([]byte) (int, error) { return 0, io.EOF }
func (i *interrupted) Close() error             { i.closed = true; return nil }

// TestInterrupted: a stream that is interrupted while it is being opened is closed.
func TestInterrupted(t *testing.T) {
	i := &interrupted{}
	i.session = newSession(New(Parts{}), i)
	c := i.session.conn.(*httpConn)
	if over, err := c.stream.once(t.Context(), c, &position{}, false); over || err != nil || !i.closed {
		t.Errorf("over: %t, %v; connection closed: %t", over, err, i.closed)
	}
}
