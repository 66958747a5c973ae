package mcpserver

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// tape is a connection with recorded input.
type tape struct{ net.Conn }

func (c tape) Write(p []byte) (int, error)      { return len(p), nil }
func (c tape) SetReadDeadline(time.Time) error  { return nil }
func (c tape) SetWriteDeadline(time.Time) error { return nil }
func (c tape) Close() error                     { return nil }

// FuzzSocket: whatever a socket reads, messages are limited, and it ends.
func FuzzSocket(f *testing.F) {
	var frames bytes.Buffer
	for _, frame := range []ws.Frame{
		ws.NewTextFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)), ws.NewTextFrame([]byte("x")), ws.NewPingFrame([]byte("?")),
		ws.NewFrame(ws.OpText, false, []byte("{")), ws.NewFrame(ws.OpContinuation, true, []byte("}")), ws.NewTextFrame(make([]byte, 200)),
	} {
		ws.WriteFrame(&frames, ws.MaskFrame(frame))
	}
	f.Add(frames.Bytes())
	f.Add([]byte{0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, p []byte) {
		s := &socket{conn: tape{}, in: bytes.NewReader(p), limit: 128}
		for {
			data, err := s.next()
			if err != nil {
				break
			}
			if len(data) > 128 {
				t.Fatalf("got a message of %d bytes", len(data))
			}
		}
		s.in = bytes.NewReader(p)
		for {
			if _, err := s.Read(t.Context()); err != nil {
				return
			}
		}
	})
}

// FuzzState: a state that this device did not issue is never accepted.
func FuzzState(f *testing.F) {
	d := &Device{key: []byte("a key")}
	f.Add("")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := d.unseal(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	})
}
