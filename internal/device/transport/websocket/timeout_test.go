package websocket

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// pipe returns a link in memory and its far end. Left reports whether it was released.
func pipe(t *testing.T) (l *link, far net.Conn, left func() bool) {
	cfg := DefaultConfig()
	near, far := net.Pipe()
	gone := false
	l = newLink(near, &cfg, identity{address: "98:a3:16:f9:d9:34"}, func() { gone = true })
	t.Cleanup(func() { l.Close(); far.Close() })
	return l, far, func() bool { return gone }
}

// TestHalfOpen: a device that disappears without closing is detected by its silence.
func TestHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far, _ := pipe(t)
		go io.Copy(io.Discard, far) // bytes are accepted, for example by a proxy, but not answered
		start := time.Now()
		_, err := l.Recv(t.Context())
		if took := time.Since(start); !errors.Is(err, inbound.ErrSilent) || took != 75*time.Second {
			t.Errorf("after %v, Recv returned %v", took, err)
		}
	})
}

// TestHalfOpenShortRecv: silence is also detected across many short calls of Recv.
func TestHalfOpenShortRecv(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far, _ := pipe(t)
		go io.Copy(io.Discard, far)
		start := time.Now()
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
			_, err := l.Recv(ctx)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				continue
			}
			if took := time.Since(start); !errors.Is(err, inbound.ErrSilent) || took != 75*time.Second {
				t.Errorf("after %v, Recv returned %v", took, err)
			}
			return
		}
	})
}

// TestIdle: a device that only answers pings stays connected.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far, _ := pipe(t)
		pings := 0
		go func() {
			for {
				f, err := ws.ReadFrame(far)
				if err != nil {
					return
				}
				if f.Header.OpCode == ws.OpPing {
					pings++
					ws.WriteFrame(far, ws.MaskFrame(ws.NewPongFrame(f.Payload)))
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := l.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Recv returned %v", err)
		}
		if synctest.Wait(); pings != 60 && pings != 59 {
			t.Errorf("%d pings in an hour", pings)
		}
	})
}

// TestNoRecv: time without a call of Recv does not count as silence.
func TestNoRecv(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far, _ := pipe(t)
		go ws.WriteFrame(far, ws.MaskFrame(ws.NewTextFrame([]byte("hello"))))
		time.Sleep(time.Hour)
		if m, err := l.Recv(t.Context()); err != nil || string(m.Data) != "hello" {
			t.Errorf("got %q, %v", m.Data, err)
		}
	})
}

// TestNotReading: the link to a device that does not read ends after the timeout.
func TestNotReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, left := pipe(t)
		start := time.Now()
		err := l.Send(t.Context(), transport.Message{Data: []byte("x")})
		if took := time.Since(start); !errors.Is(err, transport.ErrUnsent) || !errors.Is(err, inbound.ErrNotReading) || took != 5*time.Second {
			t.Errorf("after %v, Send returned %v", took, err)
		}
		if !left() {
			t.Error("the link was not released")
		}
	})
}

// TestShortDeadline: a caller with a short deadline does not end the link.
func TestShortDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far, left := pipe(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Send(ctx, transport.Message{Data: []byte("x")}); !errors.Is(err, transport.ErrUnsent) || left() {
			t.Errorf("Send returned %v", err)
		}
		go l.Send(t.Context(), transport.Message{Data: []byte("y")})
		if f, err := ws.ReadFrame(far); err != nil || string(f.Payload) != "y" {
			t.Errorf("got %q, %v", f.Payload, err)
		}
	})
}
