package mcpdev

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/wire"
)

// TestEvents: lines end with CR, LF or both, as the standard has it, and comments keep a
// stream alive for as long as it likes.
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
	kept := strings.NewReader(strings.Repeat(": a comment\n\n", 2*maxEvent/13) + "data: 1\n\n")
	count := 0
	if err := events(kept, func(event) bool { count++; return true }); err != nil || count != 1 {
		t.Errorf("after very many comments there are %d events, %v", count, err)
	}
}

// endless is a stream that says the same for ever, and counts.
type endless struct {
	text string
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e.text) <= len(p) {
		n += copy(p[n:], e.text)
	}
	if e.read += n; e.read > 8*maxEvent {
		return 0, io.EOF
	}
	return n, nil
}

// TestEndlessEvents: what has no end is not kept, however its lines do not end.
func TestEndlessEvents(t *testing.T) {
	for _, text := range []string{"data", "data: x\n", "data: x\r", ": x\n"} {
		e := &endless{text: text}
		if err := events(e, func(event) bool { return true }); !errors.Is(err, wire.ErrTooLong) || e.read > 3*maxEvent {
			t.Errorf("%q: %d bytes were read: %v", text, e.read, err)
		}
	}
	e := &endless{text: "data: x\r\r"}
	count := 0
	events(e, func(event) bool { count++; return count < 10 })
	if count != 10 || e.read > 1<<20 {
		t.Errorf("%d events, after %d bytes", count, e.read)
	}
}
