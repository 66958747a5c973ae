package main

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestGreenhouse: an agent reads, waters with progress, and reads again. The same tools
// work over MCP/U.
func TestGreenhouse(t *testing.T) {
	d := newDevice(time.Millisecond, mcpserver.Config{})
	server := httptest.NewServer(d.Handler())
	defer server.Close()
	progress := make(chan string, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { progress <- req.Params.Message },
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	call := func(tool, args string) string {
		t.Helper()
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args), Meta: mcp.Meta{"progressToken": 1}})
		if err != nil {
			t.Fatal(err)
		}
		return result.Content[0].(*mcp.TextContent).Text
	}
	if got := call("read_climate", `{"bed":"basil"}`); !strings.Contains(got, `"moisture_percent":5`) {
		t.Errorf("got %s", got)
	}
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "water", Arguments: json.RawMessage(`{"bed":"basil","seconds":31}`)})
	if err == nil || !strings.Contains(err.Error(), "seconds must be at most 30, got 31") {
		t.Errorf("got %v", err)
	}
	if got := call("water", `{"bed":"basil","seconds":2}`); !strings.Contains(got, `"moisture_percent":80`) {
		t.Errorf("got %s", got)
	}
	if got := <-progress; got != "watering the basil" {
		t.Errorf("got %s", got)
	}
	if got := call("read_climate", `{"bed":"basil"}`); !strings.Contains(got, `"moisture_percent":80`) {
		t.Errorf("it is dry, by the cache: %s", got)
	}
	read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "greenhouse://log"})
	if err != nil || !strings.Contains(read.Contents[0].Text, "the basil had water for 2 seconds") {
		t.Errorf("got %+v, %v", read, err)
	}
	prompt, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "advise", Arguments: map[string]string{"bed": "thyme"}})
	if err != nil || !strings.Contains(prompt.Messages[0].Content.(*mcp.TextContent).Text, "My thyme has 5 percent") {
		t.Errorf("got %+v, %v", prompt, err)
	}
	if got := string(d.Answer(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"read_climate","params":{"bed":"basil"}}`))); !strings.Contains(got, `"moisture_percent":80`) {
		t.Errorf("over MCP/U: %s", got)
	}
}
