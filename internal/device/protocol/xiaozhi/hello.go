package xiaozhi

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// hello is how a device begins a WebSocket, and a talk over MQTT.
type hello struct {
	mcp bool // its firmware has MCP
	udp bool // it wants to send sound over UDP
}

// answerHello says hello. The device waits ten seconds for it, and crashes if the
// transport is not named.
func (s *session) answerHello(ctx context.Context, h hello) error {
	id := s.dialect.sessionID()
	if h.udp {
		return s.refuseVoice(ctx, id)
	}
	return s.send(ctx, append(appendHello(nil, "websocket", id), '}'))
}

// refuseVoice answers a device that wants to talk over UDP, and ends the talk at
// once: without an answer it shows an error after ten seconds. What it says in
// between goes to itself, so the key does not matter; it must have its length.
func (s *session) refuseVoice(ctx context.Context, id string) error {
	b := appendHello(nil, "udp", id)
	b = append(b, `,"version":3,"udp":{"server":"127.0.0.1","port":9,"encryption":"aes-128-ctr","key":"00000000000000000000000000000000","nonce":"00000000000000000000000000000000"}}`...)
	if err := s.send(ctx, b); err != nil {
		return err
	}
	b = append([]byte(`{"type":"goodbye","session_id":`), ferrule.AppendString(nil, id)...)
	return s.send(ctx, append(b, '}'))
}

// appendHello begins a hello; it is not closed.
func appendHello(b []byte, transport, id string) []byte {
	b = append(b, `{"type":"hello","transport":"`...)
	b = append(b, transport...)
	b = append(b, `","session_id":`...)
	b = ferrule.AppendString(b, id)
	return append(b, `,"audio_params":{"format":"opus","sample_rate":24000,"channels":1,"frame_duration":60}`...)
}

var pong = []byte(`{"type":"pong"}`)
