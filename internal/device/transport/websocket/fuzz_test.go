package websocket

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// decodeAll decodes bytes that come in pieces and returns the events.
func decodeAll(t *testing.T, d *decoder, pieces ...[]byte) (found []event, err error) {
	for _, p := range pieces {
		for {
			used, e, err := d.next(p)
			p = p[used:]
			if len(d.data) > d.limit || len(d.control) > ws.MaxControlFramePayloadSize {
				t.Fatalf("the decoder holds %d and %d bytes", len(d.data), len(d.control))
			}
			if err != nil {
				return found, err
			}
			if e.kind == nothing {
				if len(p) > 0 {
					t.Fatalf("%d bytes were not used", len(p))
				}
				break
			}
			e.data = bytes.Clone(e.data)
			found = append(found, e)
		}
	}
	return found, nil
}

// FuzzDecoder: the events do not depend on how the bytes are split, and are bounded.
func FuzzDecoder(f *testing.F) {
	var frames bytes.Buffer
	for _, frame := range []ws.Frame{
		ws.NewTextFrame([]byte(`{"type":"hello"}`)), ws.NewBinaryFrame([]byte("opus")), ws.NewPingFrame([]byte("?")),
		ws.NewFrame(ws.OpText, false, []byte("a")), ws.NewFrame(ws.OpContinuation, true, []byte("b")),
		ws.NewTextFrame(make([]byte, 200)), ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "")),
	} {
		ws.WriteFrame(&frames, ws.MaskFrame(frame))
	}
	f.Add(frames.Bytes(), 7)
	f.Add([]byte("\x81\x02{}\x89\x01?\x01\x01a\x80\x01b"), 2) // from a device that was dialed
	f.Add([]byte{0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5}, 3)
	endless := []byte{0x01, 0x81, 0, 0, 0, 0, 'a', 0x80, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	f.Add(append(endless, make([]byte, 500)...), 50) // the sum of its frame lengths overflows
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		const limit = 128
		client := len(p) > 1 && p[1]&0x80 == 0
		whole, wholeErr := decodeAll(t, &decoder{limit: limit, client: client}, p)
		size = max(1, size%64)
		var pieces [][]byte
		for rest := p; len(rest) > 0; {
			n := min(size, len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		cut, cutErr := decodeAll(t, &decoder{limit: limit, client: client}, pieces...)
		if (wholeErr == nil) != (cutErr == nil) || len(whole) != len(cut) {
			t.Fatalf("whole: %d events, %v; in pieces: %d events, %v", len(whole), wholeErr, len(cut), cutErr)
		}
		for i := range whole {
			if a, b := whole[i], cut[i]; a.kind != b.kind || a.size != b.size || !bytes.Equal(a.data, b.data) {
				t.Fatalf("event %d: %+v whole, %+v in pieces", i, a, b)
			}
		}
	})
}

// FuzzIdentity: every identity has a MAC address and is bounded.
func FuzzIdentity(f *testing.F) {
	f.Add("98:a3:16:f9:d9:34", "7b94d69a", "Bearer abc", "1", "")
	f.Add("", "", "", "", "device-id=98:A3:16:F9:D9:34&authorization=x&client-id=y")
	f.Add("98-a3-16-f9-d9-34", "", "Basic a b", "3", "%zz")
	f.Fuzz(func(t *testing.T, device, client, token, version, query string) {
		r := &http.Request{Header: http.Header{"Upgrade": {"websocket"}}, URL: &url.URL{RawQuery: query}}
		for name, value := range map[string]string{"Device-Id": device, "Client-Id": client, "Authorization": token, "Protocol-Version": version} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		id, err := identify(r)
		if err != nil {
			if id != (identity{}) {
				t.Errorf("got %+v and error %v", id, err)
			}
			return
		}
		if again, err := transport.ParseMAC(id.address); err != nil || again != id.address || strings.ToLower(id.address) != id.address || len(id.address) != 17 {
			t.Errorf("address %q", id.address)
		}
		if len(id.client) > maxClient || len(id.token) > maxToken || id.version < 1 || id.version > 3 {
			t.Errorf("got %+v", id)
		}
	})
}
