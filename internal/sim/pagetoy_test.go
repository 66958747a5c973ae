package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/mqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/testenv/transcript"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// TestXiaozhiPage runs the transcripts of the page about xiaozhi devices, with one message per
// line.
func TestXiaozhiPage(t *testing.T) {
	const webSocket = "the device is connected by a WebSocket"
	ran := make(map[string]int)
	for _, s := range transcript.Read(t, "../../docs/reference/xiaozhi-devices.md", "xiaozhi") {
		first := s.Steps[0] == transcript.Step{Kind: "#", Text: webSocket}
		if first {
			s.Steps = s.Steps[1:]
		}
		for _, target := range s.Targets {
			name, misbehave, _ := strings.Cut(target, "/")
			ran[name]++
			t.Run(fmt.Sprintf("line %d with %s", s.Line, target), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					near, far := net.Pipe()
					ended := make(chan error, 1)
					switch name {
					case "sim":
						go func() { ended <- newToy(t, misbehave).ServeConn(t.Context(), xiaozhi.Lines(far), first) }()
					case "thing":
						go func() { ended <- lamp().Serve(t.Context(), xiaozhi.Lines(far), first) }()
					default:
						t.Fatalf("unknown device %s", target)
					}
					s.Run(t, near, nil, `{"type":"mcp","payload":{"jsonrpc":"2.0","id":32000,"method":"none_such"}}`,
						`{"session_id":"…","type":"mcp","payload":{"jsonrpc":"2.0","id":32000,"error":{"message":"Method not implemented: none_such"}}}`)
					near.Close()
					if err := <-ended; err != nil {
						t.Errorf("it ended with %v", err)
					}
				})
			})
		}
	}
	ws, broker := websocket.DefaultConfig(), mqtt.DefaultConfig()
	if ws.MaxMessage != 64<<10 || broker.MaxPacket != 64<<10 || ws.Ping != time.Minute || ws.Pong != 15*time.Second {
		t.Error("the page has other limits of a connection")
	}
	if ran["thing"] < 5 || ran["sim"] < 5 {
		t.Errorf("transcripts by device: %v", ran)
	}
}

// lamp returns a device with a tool for everybody and one for people.
func lamp() *xiaozhi.Device {
	d := thing.New("desk-lamp", "1.0.0")
	thing.Tool(d, "self.lamp.set", "Set the brightness", func(context.Context, map[string]any) (bool, error) { return true, nil },
		thing.WithSchema(json.RawMessage(`{"type":"object","properties":{"percent":{"type":"integer","minimum":0,"maximum":100}},"required":["percent"]}`)))
	thing.Tool(d, "self.reboot", "Reboot", func(context.Context, map[string]any) (bool, error) { return true, nil },
		thing.WithSchema(json.RawMessage(`{"type":"object","properties":{}}`)), thing.UserOnly())
	return xiaozhi.New(d)
}
