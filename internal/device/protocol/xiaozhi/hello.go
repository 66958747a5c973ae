package xiaozhi

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// hello is the first message on a WebSocket, and of a conversation over MQTT.
type hello struct {
	mcp bool // the firmware has MCP
	udp bool // the device wants to send sound over UDP
}

// answerHello answers a hello. The device waits ten seconds for the answer, and crashes
// if it does not name the transport.
func (s *session) answerHello(ctx context.Context, h hello) error {
	id := s.protocol.sessionID()
	if h.udp {
		return s.refuseVoice(ctx, id)
	}
	return s.send(ctx, append(appendHello(nil, "websocket", id), '}'))
}

// refuseVoice answers a device that wants to talk over UDP, and ends the conversation at
// once. Without an answer, the device shows an error after ten seconds. It sends its
// sound to itself until then, so the key can be any of the right length.
func (s *session) refuseVoice(ctx context.Context, id string) error {
	b := appendHello(nil, "udp", id)
	b = append(b, `,"version":3,"udp":{"server":"127.0.0.1","port":9,"encryption":"aes-128-ctr","key":"00000000000000000000000000000000","nonce":"00000000000000000000000000000000"}}`...)
	if err := s.send(ctx, b); err != nil {
		return err
	}
	b = append([]byte(`{"type":"goodbye","session_id":`), ferrule.AppendString(nil, id)...)
	return s.send(ctx, append(b, '}'))
}

// appendHello appends a hello without its closing brace.
func appendHello(b []byte, transport, id string) []byte {
	b = append(b, `{"type":"hello","transport":"`...)
	b = append(b, transport...)
	b = append(b, `","session_id":`...)
	b = ferrule.AppendString(b, id)
	return append(b, `,"audio_params":{"format":"opus","sample_rate":24000,"channels":1,"frame_duration":60}`...)
}

var pong = []byte(`{"type":"pong"}`)
