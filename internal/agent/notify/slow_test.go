package notify

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// narrow is a listener whose connections buffer little of what is not read.
type narrow struct{ net.Listener }

const window = 4096

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(window)
	}
	return conn, err
}

// emptyResult is the result of resources/subscribe.
type emptyResult struct{ mcp.Result }

func (emptyResult) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

// serveNarrow serves a group whose only resource is robot, over narrow connections. An agent
// that does not read is disconnected after a response time.
func serveNarrow(t *testing.T, response time.Duration) (n *Notifier, g *Group, url string) {
	t.Helper()
	n = New(Config{
		Handle: func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil },
		Device: func(string) (*ferrule.Device, bool) { return nil, false },
	})
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{
			Tools:     &mcp.ToolCapabilities{ListChanged: true},
			Resources: &mcp.ResourceCapabilities{Subscribe: true},
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	g = n.Attach(server)
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch req := req.(type) {
			case *mcp.SubscribeRequest:
				return emptyResult{}, g.Subscribe(ctx, gatewayPrincipal, req.Session, req.Params.URI, robot)
			case *mcp.SubscriptionsListenRequest:
				find := func(context.Context, string) (Topic, error) { return robot, nil }
				return g.Listen(ctx, gatewayPrincipal, req, find, func(ctx context.Context) (mcp.Result, error) { return next(ctx, method, req) })
			}
			return next(ctx, method, req)
		}
	})
	handler := mcphttp.New(mcphttp.Config{
		Server:      func(*http.Request) *mcp.Server { return server },
		Servers:     func() iter.Seq[*mcp.Server] { return slices.Values([]*mcp.Server{server}) },
		MaxSessions: 100, Idle: time.Hour, Events: mcphttp.EventLimits{Total: 8 << 20, Session: 2 << 20},
	})
	handler.Deadlines.Response = response
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &httptest.Server{Listener: narrow{ln}, Config: &http.Server{Handler: handler}}
	web.Start()
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return n, g, web.URL
}

// connect connects an agent that gets notifications of the tool list, and of robot.
func connect(t *testing.T, url, version string) (received [2]chan struct{}) {
	t.Helper()
	received = [2]chan struct{}{make(chan struct{}, 10_000), make(chan struct{}, 10_000)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { received[0] <- struct{}{} },
		ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { received[1] <- struct{}{} },
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "robot"}); err != nil {
		t.Fatal(err)
	}
	return received
}

// connectStalled connects an agent that subscribes, and never reads.
func connectStalled(t *testing.T, url, version string) {
	t.Helper()
	dialer := net.Dialer{}
	conn, err := dialer.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.(*net.TCPConn).SetReadBuffer(window)
	const head = "%s /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nMcp-Protocol-Version: %s\r\n%sContent-Length: %d\r\n\r\n%s"
	if version == mcphttp.StatelessVersion {
		body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["robot"]},"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
		fmt.Fprintf(conn, head, "POST", version, "Mcp-Method: subscriptions/listen\r\n", len(body), body)
		return
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"stalled","version":"1"},"capabilities":{}}}`
	fmt.Fprintf(conn, head, "POST", version, "", len(body), body)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	session := "Mcp-Session-Id: " + resp.Header.Get("Mcp-Session-Id") + "\r\n"
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"robot"}}`,
	} {
		fmt.Fprintf(conn, head, "POST", version, session, len(body), body)
		resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode >= 300 || strings.Contains(string(text), "error") {
			t.Fatalf("%d %s %v", resp.StatusCode, text, err)
		}
	}
	fmt.Fprintf(conn, head, "GET", version, session, 0, "")
}

// TestStalledAgents: agents that subscribe and do not read delay no others, and are
// disconnected after a while.
func TestStalledAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Run("others", func(t *testing.T) {
		n, g, url := serveNarrow(t, wait.Ample)
		var received []chan struct{}
		for _, version := range []string{mcphttp.SessionVersion, mcphttp.StatelessVersion} {
			connectStalled(t, url, version)
			connectStalled(t, url, version)
			both := connect(t, url, version)
			received = append(received, both[:]...)
		}
		slowest := time.Duration(0)
		full := 0 // rounds in a row in which all four stalled agents were blocked
		for end := time.Now().Add(wait.Ample); full < 20; {
			if time.Now().After(end) {
				t.Fatalf("only %d agents are blocked", len(n.blocked()))
			}
			start := time.Now()
			g.ListChanged(ToolsChanged)
			n.update()
			for _, c := range received {
				select {
				case <-c:
				case <-time.After(wait.Ample):
					t.Fatalf("an agent is not notified while %d others do not read", len(n.blocked()))
				}
			}
			slowest = max(slowest, time.Since(start))
			time.Sleep(5 * time.Millisecond) // lets other deliveries end
			if full++; len(n.blocked()) < 4 {
				full = 0
			}
		}
		figure.AtMost(t, "notifying agents while 4 others do not read", slowest, 2*time.Second)
	})
	t.Run("disconnected", func(t *testing.T) {
		n, g, url := serveNarrow(t, 3*time.Second)
		for _, version := range []string{mcphttp.SessionVersion, mcphttp.StatelessVersion} {
			connectStalled(t, url, version)
			connectStalled(t, url, version)
		}
		seen := make(map[*mcp.ServerSession]bool)
		wait.For(t, "all agents have been blocked", func() bool {
			for range 100 {
				g.ListChanged(ToolsChanged)
				n.update()
			}
			time.Sleep(100 * time.Millisecond) // lets other deliveries end
			maps.Copy(seen, n.blocked())
			return len(seen) == 4
		})
		wait.For(t, "all agents are disconnected", func() bool { return len(n.blocked()) == 0 })
	})
}

// blocked returns the sessions that have a delivery under way.
func (n *Notifier) blocked() map[*mcp.ServerSession]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	sessions := make(map[*mcp.ServerSession]bool)
	for d := range n.deliveries {
		sessions[d.session] = true
	}
	return sessions
}

// update notifies the subscribers of robot, without the minimum interval.
func (n *Notifier) update() {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.topics[robot]
	if s == nil {
		return
	}
	for sub, uri := range s.subscribers {
		n.send(sub, delivery{sub.group, sub.session, sub.key(), ResourceUpdated, uri})
	}
}
