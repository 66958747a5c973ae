package mcpserver_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// serveSockets serves a device over WebSockets until the test ends.
func serveSockets(t *testing.T, d *mcpserver.Device) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.ServeWebSocket(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ServeWebSocket returned %v", err)
		}
	})
	return "ws://" + ln.Addr().String() + "/"
}

// socketClient is a transport of the official client over a WebSocket.
type socketClient struct{ net.Conn }

func dialSocket(t *testing.T, url string) socketClient {
	t.Helper()
	conn, _, _, err := ws.Dial(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return socketClient{conn}
}

func (c socketClient) Connect(context.Context) (mcp.Connection, error) { return c, nil }
func (c socketClient) SessionID() string                               { return "" }

func (c socketClient) Read(context.Context) (jsonrpc.Message, error) {
	data, err := wsutil.ReadServerText(c.Conn)
	if err != nil {
		return nil, err
	}
	return jsonrpc.DecodeMessage(data)
}

func (c socketClient) Write(_ context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	return wsutil.WriteClientText(c.Conn, data)
}

// TestWebSocket: all features work over a WebSocket, in all protocol versions.
func TestWebSocket(t *testing.T) {
	opened := 0
	url := serveSockets(t, asker(&opened))
	inVersions(t, func(t *testing.T, version string) {
		session := connect(t, dialSocket(t, url), version, answering("accept"))
		if got := call(t, session, "open", map[string]any{"door": "front"}); !strings.Contains(got, "fronttruebecause[]") {
			t.Errorf("got %s", got)
		}
	})
	if opened != 2 {
		t.Errorf("opened %d times", opened)
	}
}

// TestInvalidFrames: an invalid message gets an error, fragments are joined, a ping
// gets its pong, and a message that is binary or too long closes the socket.
func TestInvalidFrames(t *testing.T) {
	url := serveSockets(t, mcpserver.New(robot(), mcpserver.Config{}))
	conn := dialSocket(t, url)
	ask := func(frames ...ws.Frame) string {
		t.Helper()
		for _, f := range frames {
			if err := ws.WriteFrame(conn.Conn, ws.MaskFrame(f)); err != nil {
				t.Fatal(err)
			}
		}
		conn.SetReadDeadline(time.Now().Add(wait.Ample))
		f, err := ws.ReadFrame(conn.Conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(f.Payload)
	}
	if got := ask(ws.NewTextFrame([]byte("hello"))); !strings.Contains(got, "-32700") || !json.Valid([]byte(got)) {
		t.Errorf("got %s", got)
	}
	if got := ask(ws.NewPingFrame([]byte("?"))); got != "?" {
		t.Errorf("got %s", got)
	}
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"t","version":"1"},"capabilities":{}}}`
	if got := ask(ws.NewFrame(ws.OpText, false, []byte(initialize[:20])), ws.NewFrame(ws.OpContinuation, true, []byte(initialize[20:]))); !strings.Contains(got, `"robot"`) {
		t.Errorf("got %s", got)
	}
	if got := ask(ws.NewFrame(ws.OpBinary, true, []byte("sound"))); !strings.Contains(got, "text messages only") {
		t.Errorf("got %s", got)
	}
	conn = dialSocket(t, url)
	if got := ask(ws.NewFrame(ws.OpText, false, make([]byte, 1<<20)), ws.NewFrame(ws.OpContinuation, true, []byte("x"))); !strings.Contains(got, "limit is") {
		t.Errorf("got %s", got)
	}
}
