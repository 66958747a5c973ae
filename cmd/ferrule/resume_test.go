package main

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestResume checks that an agent whose connection breaks during a call gets the answer
// after it reconnects. The device is called once.
func TestResume(t *testing.T) {
	var moved atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	board := thing.New("gate", "1.0.0")
	thing.Tool(board, "open", "Open the gate", func(ctx context.Context, _ struct{}) (string, error) {
		moved.Add(1)
		mcpserver.Progress(ctx, 1, 2, "half open")
		begun <- struct{}{}
		<-goOn
		mcpserver.Progress(ctx, 2, 2, "wide open")
		return "open", nil
	})
	url := serveThing(t, mcpserver.New(board, mcpserver.Config{}))
	g := startGateway(t, nil, func(c *config.Config) { c.Devices.HTTP = []config.HTTPDevice{{URL: url, Name: "gate"}} })
	g.online("gate")
	link := newCutter(t, g.Addr())
	words := make(chan string, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { words <- req.Params.Message },
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + link.Addr().String() + "/mcp", HTTPClient: &http.Client{Transport: &http.Transport{}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	for i, reset := range []bool{true, false} {
		type answer struct {
			*mcp.CallToolResult
			error
		}
		answered := make(chan answer, 1)
		go func() {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "gate__open", Meta: mcp.Meta{"progressToken": i}})
			answered <- answer{result, err}
		}()
		<-begun
		said := []string{<-words}
		link.cut(reset)
		time.Sleep(50 * time.Millisecond) // while it is disconnected
		goOn <- struct{}{}
		got := <-answered
		if got.error != nil || got.IsError || got.Content[0].(*mcp.TextContent).Text != "open" {
			t.Fatalf("got %+v, %v", got.CallToolResult, got.error)
		}
		if said = append(said, <-words); strings.Join(said, ", ") != "half open, wide open" {
			t.Errorf("on the way: %q", said)
		}
		if n := moved.Load(); n != int32(i)+1 {
			t.Errorf("%d calls moved the gate %d times", i+1, n)
		}
	}
	if n := len(g.outcomes("gate", "open")); n != 2 {
		t.Errorf("%d calls are in the journal", n)
	}
}
