package mcpserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/thing"
)

// heard is what comes after an event.
func heard(k *kept, session, stream string, last int) (all string, err error) {
	for event, err := range k.After(context.Background(), session, stream, last) {
		if err != nil {
			return "", err
		}
		all += string(event) + " "
	}
	return all, nil
}

func TestKept(t *testing.T) {
	k := newKept()
	ctx := t.Context()
	k.Open(ctx, "s", "")
	k.Open(ctx, "s", "call")
	for _, event := range []string{"", "a", "b"} {
		k.Append(ctx, "s", "call", []byte(event))
	}
	for last, want := range map[int]string{0: "a b ", 1: "b ", 2: ""} {
		if got, err := heard(k, "s", "call", last); got != want || err != nil {
			t.Errorf("after %d: %q, %v", last, got, err)
		}
	}
	if _, err := heard(k, "s", "call", 3); err == nil {
		t.Error("what was never told can be come back to")
	}
	for i := range 2 * maxKeptNews {
		k.Append(ctx, "s", "", fmt.Appendf(nil, "%d", i))
	}
	if got, err := heard(k, "s", "", 2*maxKeptNews-2); got != fmt.Sprint(2*maxKeptNews-1, " ") || err != nil {
		t.Errorf("the last of the news: %q, %v", got, err)
	}
	if got, err := heard(k, "s", "", -1); len(strings.Fields(got)) != maxKeptNews || err != nil {
		t.Errorf("all news: %q, %v", got, err)
	}
	k.Append(ctx, "s", "", make([]byte, maxNews+1))
	if got, err := heard(k, "s", "", maxKeptNews-1); got != "" || err != nil {
		t.Errorf("news that are too large: %d bytes, %v", len(got), err)
	}
	k.SessionClosed(ctx, "s")
	k.Open(ctx, "s", "late")
	if err := k.Append(ctx, "s", "late", []byte("x")); err == nil || len(k.sessions) != 0 || k.order.Len() != 0 || k.size != 0 {
		t.Errorf("%v, and %d sessions, %d streams, %d bytes are left", err, len(k.sessions), k.order.Len(), k.size)
	}
}

// TestKeptIsBounded: a session that is used without end leaves no more behind than there
// may be, and can still be told news.
func TestKeptIsBounded(t *testing.T) {
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
		req.Header.Set(versionHeader, "2025-11-25")
		if session != "" {
			req.Header.Set(sessionHeader, session)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	session = send(http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"t","version":"1"},"capabilities":{}}}`).Header.Get(sessionHeader)
	send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"board://state"}}`)
	for i := range 3 * maxKeptStreams {
		if i%16 == 0 {
			d.Updated("board://state") // nobody listens
		}
		io.Copy(io.Discard, send(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"look"}}`, i+2)).Body)
	}
	if resp := send(http.MethodGet, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the stream of news: %s", resp.Status)
	}
}

// TestKeptBounds: so many streams, so many bytes, and the newest are there.
func TestKeptBounds(t *testing.T) {
	for name, size := range map[string]int{"small": 1, "large": maxKept / 20} {
		k := newKept()
		k.Open(t.Context(), "s", "")
		for i := range 2 * maxKeptStreams {
			k.Open(t.Context(), "s", fmt.Sprint(i))
			k.Append(t.Context(), "s", fmt.Sprint(i), []byte(strings.Repeat("x", size)))
		}
		if k.size > maxKept || k.order.Len() > maxKeptStreams || len(k.sessions["s"]) != k.order.Len()+1 || k.order.Len() < 20 {
			t.Errorf("%s: %d bytes of %d streams", name, k.size, k.order.Len())
		}
		if got, err := heard(k, "s", fmt.Sprint(2*maxKeptStreams-1), -1); len(got) != size+1 || err != nil {
			t.Errorf("%s: of the newest, %d bytes are left, %v", name, len(got), err)
		}
		if _, err := heard(k, "s", "0", -1); err == nil {
			t.Errorf("%s: the oldest is left", name)
		}
	}
}
