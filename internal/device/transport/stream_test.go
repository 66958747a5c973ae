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

// recorder is a conn that takes as much of each write as it is told to.
type recorder struct {
	writes []string
	takes  []int // bytes of each write, then an error; all if there is none
	closed bool
}

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, string(p))
	if len(r.takes) == 0 {
		return len(p), nil
	}
	n := r.takes[0]
	r.takes = r.takes[1:]
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

// TestSendTellsWhatLeft: if nothing left, the link goes on; if a part did, it is
// closed, because the next line would be glued to it.
func TestSendTellsWhatLeft(t *testing.T) {
	r := &recorder{takes: []int{0, 3}}
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

// TestSendEnds: a peer that does not read holds nobody up for long, whatever the
// caller's patience.
func TestSendEnds(t *testing.T) {
	for _, test := range []struct {
		patience, want time.Duration
	}{{0, 5 * time.Second}, {time.Hour, 5 * time.Second}, {time.Second, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			s := transport.NewStream(near, transport.Info{}, transport.DefaultLimits())
			defer s.Close()
			ctx := t.Context()
			if test.patience > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.patience)
				defer cancel()
			}
			start := time.Now()
			err := s.Send(ctx, transport.Message{Data: []byte("hello?")})
			if took := time.Since(start); took != test.want || !errors.Is(err, transport.ErrUnsent) {
				t.Errorf("with %v of patience it took %v: %v", test.patience, took, err)
			}
			if test.want != test.patience && !strings.Contains(err.Error(), "the device does not read") {
				t.Errorf("got %v", err)
			}
		})
	}
}
