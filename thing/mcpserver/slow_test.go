package mcpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

// narrow is a listener whose connections buffer little.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(4096)
	}
	return conn, err
}

// serveNarrow serves a device, and returns its address.
func serveNarrow(t *testing.T, d *Device) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, narrow{ln}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// TestStalledCaller: a caller that does not read delays the device for a moment only.
func TestStalledCaller(t *testing.T) {
	board := thing.New("d", "1")
	took := make(chan time.Duration, 2)
	thing.Tool(board, "talk", "", func(ctx context.Context, _ struct{}) (int, error) {
		begin := time.Now()
		for i := range 500 {
			Progress(ctx, float64(i), 0, strings.Repeat("x", 10_000))
		}
		took <- time.Since(begin)
		return 0, nil
	})
	d := New(board, Config{})
	d.http.Deadlines.Response = 500 * time.Millisecond
	addr := serveNarrow(t, d)
	for _, version := range []string{"2025-11-25", mcphttp.StatelessVersion} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.(*net.TCPConn).SetReadBuffer(4096)
		send := func(session, method, body string) {
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"+
				"Mcp-Protocol-Version: %s\r\nMcp-Method: %s\r\nMcp-Name: talk\r\n%sContent-Length: %d\r\n\r\n%s", version, method, session, len(body), body)
		}
		session, meta := "", `"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
		if version != mcphttp.StatelessVersion {
			send("", "initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"stalled","version":"1"},"capabilities":{}}}`)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body) // the session begins with the response
			session, meta = "Mcp-Session-Id: "+resp.Header.Get("Mcp-Session-Id")+"\r\n", `"progressToken":1`
			if conn, err = net.Dial("tcp", addr); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.(*net.TCPConn).SetReadBuffer(4096)
		}
		send(session, "tools/call", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"talk","arguments":{},"_meta":{`+meta+`}}}`)
		select {
		case took := <-took:
			figure.AtMost(t, version+": a stalled caller delays the device", took, 5*time.Second)
		case <-time.After(wait.Ample):
			t.Fatalf("%s: the device is delayed without end", version)
		}
	}
}

// TestLargeResults: a result that is larger than the event store arrives, even over a
// slow connection.
func TestLargeResults(t *testing.T) {
	board := thing.New("d", "1")
	thing.Tool(board, "look", "", func(context.Context, struct{}) (thing.Image, error) {
		return thing.Image{MIME: "image/png", Data: make([]byte, 4*maxEvents)}, nil
	})
	url := "http://" + serveNarrow(t, New(board, Config{})) + "/mcp"
	for _, version := range []string{"2025-11-25", mcphttp.StatelessVersion} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "look"})
			if err != nil || len(result.Content[0].(*mcp.ImageContent).Data) != 4*maxEvents {
				t.Errorf("%s: %v", version, err)
			}
		}
		session.Close()
	}
}

// TestLaneLimit: a call beyond the limit of waiting calls is not made.
func TestLaneLimit(t *testing.T) {
	l := newLane()
	ctx, cancel := context.WithCancel(t.Context())
	if err := l.enter(ctx, ctx); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, maxWaiting)
	for range maxWaiting {
		go func() { waiting <- l.enter(ctx, ctx) }()
	}
	wait.For(t, "all calls wait", func() bool { return l.waiting.Load() == maxWaiting })
	if err := l.enter(ctx, ctx); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("got %v", err)
	}
	cancel()
	for range maxWaiting {
		if err := <-waiting; err == nil {
			t.Error("a cancelled call entered the lane")
		}
	}
}

// TestIdleSessions: a session without requests and without an open stream ends.
func TestIdleSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	d := New(thing.New("d", "1"), Config{Idle: 1500 * time.Millisecond})
	url := "http://" + serveNarrow(t, d) + "/mcp"
	for _, silent := range []bool{true, false} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: silent}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if silent {
			wait.For(t, "the session ends", func() bool { return d.Stats().Sessions == 0 })
		} else {
			time.Sleep(4 * time.Second)
		}
		if err := session.Ping(t.Context(), nil); (err != nil) != silent {
			t.Errorf("without a stream: %v, %v", silent, err)
		}
	}
}
