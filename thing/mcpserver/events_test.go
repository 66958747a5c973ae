package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/thing"
)

// TestLongSession: after many calls a session can still open its stream of
// notifications.
func TestLongSession(t *testing.T) {
	board := thing.New("board", "1")
	thing.Tool(board, "look", "Look", func(context.Context, struct{}) (string, error) { return strings.Repeat("x", 2000), nil })
	d := New(board, Config{})
	d.Resource(Resource{URI: "board://state"}, func(context.Context) (any, error) { return "ok", nil })
	server := httptest.NewServer(d.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	session := ""
	send := func(verb, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), verb, server.URL+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set(mcphttp.VersionHeader, "2025-11-25")
		if session != "" {
			req.Header.Set(mcphttp.SessionHeader, session)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	session = send(http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"t","version":"1"},"capabilities":{}}}`).Header.Get(mcphttp.SessionHeader)
	send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"board://state"}}`)
	for i := range 768 {
		if i%16 == 0 {
			d.Updated("board://state") // nobody reads it
		}
		io.Copy(io.Discard, send(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"look"}}`, i+2)).Body)
	}
	if resp := send(http.MethodGet, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the stream of notifications: %s", resp.Status)
	}
}

// TestJSON: a client that reads only JSON, like the bridge of mcpd, can use a device. The
// bridge sends no protocol version, and a call takes as long as it takes.
func TestJSON(t *testing.T) {
	board := thing.New("board", "1")
	thing.Tool(board, "wait", "Wait", func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-time.After(100 * time.Millisecond):
			return "done", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	server := httptest.NewServer(New(board, Config{}).Handler())
	defer server.Close()
	session := ""
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"a","version":"1"},"capabilities":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fly","arguments":{}}}`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/mcp", strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set(mcphttp.SessionHeader, session)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" || !json.Valid(body) {
			t.Errorf("%s: %s %s %s, %v", message, resp.Status, resp.Header.Get("Content-Type"), body, err)
		}
		session = cmp.Or(session, resp.Header.Get(mcphttp.SessionHeader))
	}
}
