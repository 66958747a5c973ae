package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// bearer sends a token with every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// TestWorkshop: machines are offered with the key, the stop button ends a running call
// and refuses the next, and a caller without the token is refused.
func TestWorkshop(t *testing.T) {
	d, shop := newDevice(100*time.Millisecond, mcpserver.Config{Tokens: []string{"secret"}})
	server := httptest.NewServer(d.Handler())
	defer server.Close()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			if req.Params.Progress == 50 {
				shop.turn(d, "stop")
			}
		},
	})
	dial := func(token string) (*mcp.ClientSession, error) {
		return client.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: server.URL + "/mcp", HTTPClient: &http.Client{Transport: bearer(token)},
		}, nil)
	}
	if _, err := dial("guess"); err == nil {
		t.Error("a stranger is connected")
	}
	session, err := dial("secret")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	saw := func(millimetres int) (string, error) {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "saw", Arguments: map[string]any{"millimetres": millimetres}, Meta: mcp.Meta{"progressToken": 1},
		})
		if err != nil {
			return "", err
		}
		return result.Content[0].(*mcp.TextContent).Text, nil
	}
	if _, err := saw(10); err == nil {
		t.Error("it saws without the key")
	}
	shop.turn(d, "key on")
	if got, err := saw(40); err != nil || got != `{"cut_millimetres":40}` {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := saw(600); err != nil || !strings.Contains(got, "the stop button was pressed after") {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := saw(10); err != nil || got != errStopped.Error() {
		t.Errorf("got %s, %v", got, err)
	}
	shop.turn(d, "release")
	if got, err := saw(10); err != nil || got != `{"cut_millimetres":10}` {
		t.Errorf("got %s, %v", got, err)
	}
	shop.turn(d, "key off")
	if _, err := saw(10); err == nil {
		t.Error("it saws without the key")
	}
	status, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "status"})
	if err != nil || status.Content[0].(*mcp.TextContent).Text != `{"calls":3,"failed":1,"stopped":false}` {
		t.Errorf("got %+v, %v", status, err)
	}
}
