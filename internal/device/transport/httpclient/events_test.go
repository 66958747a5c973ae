package httpclient

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// newStream returns the stream of a device that sends body.
func newStream(body io.Reader, limit int) *eventStream {
	cfg := DefaultConfig()
	cfg.MaxMessage = limit
	return &eventStream{
		link: newLink(&cfg, "board", endpoint{}, "", &place{}), body: io.NopCloser(body),
		release: func() {}, reason: func(err error) error { return err },
	}
}

// endless repeats a text.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e) <= len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// TestStreamRate: a flooding device is read slowly, with long and with short events.
func TestStreamRate(t *testing.T) {
	for name, text := range map[string]string{"long": "data: " + strings.Repeat("x", 1000) + "\n\n", "short": ":\n\n"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStream(endless(text), 1<<20)
			began, size, events := time.Now(), 0, 0
			for p := make([]byte, 32<<10); time.Since(began) < time.Second/2; {
				n, err := s.Read(p)
				if err != nil {
					t.Fatal(err)
				}
				size += n
				events += bytes.Count(p[:n], []byte("\n\n"))
			}
			if cost := size + events*transport.LineCost; cost > streamRate {
				t.Errorf("%s events: %d bytes in %d events were read in half a second", name, size, events)
			}
		})
	}
}

// FuzzStream: the body passes through unchanged up to an event that is too long, and
// no more than the limit is buffered.
func FuzzStream(f *testing.F) {
	f.Add([]byte("event: message\ndata: {}\n\n: keep\r\n\r\ndata: x\r\rid: 1"), 3)
	f.Add(bytes.Repeat([]byte("x"), 100), 7)
	f.Fuzz(func(t *testing.T, sent []byte, size int) {
		const limit = 64
		s := newStream(bytes.NewReader(sent), limit)
		s.link.Observe(func(f transport.Frame) {
			if len(f.Message.Data) > limit+1 {
				t.Fatalf("an event of %d bytes", len(f.Message.Data))
			}
		})
		var got []byte
		p := make([]byte, 1+(size&31))
		for {
			n, err := s.Read(p)
			got = append(got, p[:n]...)
			if errors.Is(err, io.EOF) {
				if !bytes.Equal(got, sent) {
					t.Fatalf("got %q of %q", got, sent)
				}
				return
			}
			if err != nil {
				if !errors.Is(err, transport.ErrTooLong) || !bytes.HasPrefix(sent, got) || len(sent) <= limit {
					t.Fatalf("got %q of %q: %v", got, sent, err)
				}
				return
			}
		}
	})
}
