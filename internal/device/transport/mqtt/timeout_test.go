package mqtt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// acceptAll are credentials that adopt every device.
type acceptAll struct{}

func (acceptAll) Check(context.Context, netip.Addr, string, string, string, string) (string, string, bool, error) {
	return "toy", "", true, nil
}

// inMemory connects a device over a pipe and opens it. It must be called inside a
// synctest bubble.
func inMemory(t *testing.T, keepalive uint16) (transport.Link, net.Conn) {
	t.Helper()
	cfg := DefaultConfig()
	c := New(cfg, nil, acceptAll{}, slog.New(slog.DiscardHandler))
	seen := make(chan transport.Sighting, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go c.registry.Watch(ctx, func(_ string, all []transport.Sighting) {
		if len(all) > 0 {
			seen <- all[0]
		}
	})
	entry, err := c.registry.Accept(netip.MustParseAddr("192.168.1.20"))
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go c.serve(ctx, near, netip.Addr{}, entry)
	connect := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect}, ProtocolVersion: 4,
		Connect: packets.ConnectParams{ProtocolName: []byte("MQTT"), Clean: true, Keepalive: keepalive, ClientIdentifier: "toy"},
	}
	var out bytes.Buffer
	connect.ConnectEncode(&out)
	far.Write(out.Bytes())
	if _, err := io.ReadFull(far, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	link, err := (<-seen).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		link.Close()
		far.Close()
	})
	return link, far
}

// TestKeepAlive: a device that disappears without closing is detected after 1.5 times
// its keep-alive.
func TestKeepAlive(t *testing.T) {
	for keepalive, want := range map[uint16]time.Duration{
		1: 1500 * time.Millisecond, 240: 6 * time.Minute, 0xffff: 0xffff * 1500 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			link, _ := inMemory(t, keepalive)
			start := time.Now()
			_, err := link.Recv(t.Context())
			if took := time.Since(start); !errors.Is(err, inbound.ErrSilent) || took != want {
				t.Errorf("after %v, Recv returned %v; want %v", took, err, want)
			}
		})
	}
}

// TestIdle: a device that keeps its keep-alive stays connected, and so does a silent one
// without a keep-alive.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link, far := inMemory(t, 60)
		go func() {
			for range 60 {
				time.Sleep(time.Minute)
				far.Write([]byte{packets.Pingreq << 4, 0})
				io.ReadFull(far, make([]byte, 2))
			}
			far.Write([]byte{packets.Publish << 4, 4, 0, 1, 't', 'x'})
		}()
		if m, err := link.Recv(t.Context()); err != nil || string(m.Data) != "x" {
			t.Errorf("got %q, %v", m.Data, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		link, _ := inMemory(t, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		if _, err := link.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Recv returned %v", err)
		}
	})
}

// TestNotReading: the link to a device that does not read ends after the timeout.
func TestNotReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link, _ := inMemory(t, 240)
		start := time.Now()
		err := link.Send(t.Context(), transport.Message{Data: []byte("x")})
		if took := time.Since(start); !errors.Is(err, transport.ErrUnsent) || !errors.Is(err, inbound.ErrNotReading) || took != 5*time.Second {
			t.Errorf("after %v, Send returned %v", took, err)
		}
		if _, err := link.Recv(t.Context()); !errors.Is(err, inbound.ErrNotReading) {
			t.Errorf("Recv returned %v", err)
		}
	})
}

// TestBackpressure: nothing is read from a device while Recv is not called.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, far := inMemory(t, 240)
		far.SetWriteDeadline(time.Now().Add(time.Minute))
		written := 0
		for {
			n, err := far.Write([]byte{packets.Publish << 4, 4, 0, 1, 't', 'x'})
			if written += n; err != nil {
				break
			}
		}
		if written > 0 {
			t.Errorf("%d bytes were read", written)
		}
	})
}
