package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// recorder is a conn that accepts a given part of each write.
type recorder struct {
	writes  []string
	accepts []int // bytes of each write, then an error; everything if empty
	closed  bool
}

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, string(p))
	if len(r.accepts) == 0 {
		return len(p), nil
	}
	n := r.accepts[0]
	r.accepts = r.accepts[1:]
	return n, os.ErrDeadlineExceeded
}

func (r *recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r *recorder) Close() error                     { r.closed = true; return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func TestSendIsOneWrite(t *testing.T) {
	r := &recorder{}
	s := transport.NewStream(r, transport.Info{}, transport.DefaultLimits())
	for _, line := range []string{"one", "two"} {
		if err := s.Send(t.Context(), transport.Message{Data: []byte(line)}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(r.writes, []string{"one\n", "two\n"}) {
		t.Errorf("written %q", r.writes)
	}
}

// TestPartialSend: if nothing was sent, the link stays open. If a part was sent, it is
// closed, because the next line would be appended to that part.
func TestPartialSend(t *testing.T) {
	r := &recorder{accepts: []int{0, 3}}
	s := transport.NewStream(r, transport.Info{}, transport.DefaultLimits())
	if err := s.Send(context.Background(), transport.Message{Data: []byte("first")}); !errors.Is(err, transport.ErrUnsent) || r.closed {
		t.Errorf("got %v, closed %t", err, r.closed)
	}
	if err := s.Send(context.Background(), transport.Message{Data: []byte("second")}); err == nil || errors.Is(err, transport.ErrUnsent) || !r.closed {
		t.Errorf("got %v, closed %t", err, r.closed)
	}
	if err := s.Send(context.Background(), transport.Message{Data: []byte("third")}); !errors.Is(err, transport.ErrUnsent) || len(r.writes) != 2 {
		t.Errorf("got %v, written %q", err, r.writes)
	}
}

// TestSendTimeout: a peer that does not read blocks Send for 5 seconds at most,
// whatever the context's deadline.
func TestSendTimeout(t *testing.T) {
	for _, test := range []struct {
		timeout, want time.Duration
	}{{0, 5 * time.Second}, {time.Hour, 5 * time.Second}, {time.Second, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			s := transport.NewStream(near, transport.Info{}, transport.DefaultLimits())
			defer s.Close()
			ctx := t.Context()
			if test.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.timeout)
				defer cancel()
			}
			start := time.Now()
			err := s.Send(ctx, transport.Message{Data: []byte("hello?")})
			if took := time.Since(start); took != test.want || !errors.Is(err, transport.ErrUnsent) {
				t.Errorf("with a timeout of %v it took %v: %v", test.timeout, took, err)
			}
			if test.want != test.timeout && !strings.Contains(err.Error(), "the device does not read") {
				t.Errorf("got %v", err)
			}
		})
	}
}
