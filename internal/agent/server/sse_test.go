package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// sseClient is a client of HTTP+SSE that sends exactly what a test says.
type sseClient struct {
	t      *testing.T
	url    string // for messages
	token  string
	events *bufio.Scanner
	leave  context.CancelFunc
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","clientInfo":{"name":"mcp","version":"0.1.0"},"capabilities":{}}}`

// openSSE opens a stream at an address, and reads its first event.
func openSSE(t *testing.T, base, path, token string) *sseClient {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	resp := get(ctx, t, base+path, token)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	c := &sseClient{t: t, token: token, events: bufio.NewScanner(resp.Body), leave: cancel}
	c.events.Buffer(nil, 1<<20)
	name, data := c.next()
	if name != "endpoint" {
		t.Fatalf("the first event is %q", name)
	}
	c.url = base + data
	return c
}

// get sends the request that opens a stream.
func get(ctx context.Context, t *testing.T, url, token string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// next returns the next event. Both are empty at the end of the stream.
func (c *sseClient) next() (name, data string) {
	for c.events.Scan() {
		line := c.events.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			name = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			data = strings.TrimPrefix(line, "data: ")
		case line == "" && name != "":
			return name, data
		}
	}
	return "", ""
}

// send posts a message, and returns the status.
func (c *sseClient) send(message string) int {
	c.t.Helper()
	r, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(message))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// ask posts a request, and returns its answer.
func (c *sseClient) ask(message string) string {
	c.t.Helper()
	if status := c.send(message); status != http.StatusAccepted {
		c.t.Fatalf("%s: %d", message, status)
	}
	name, data := c.next()
	if name != "message" {
		c.t.Fatalf("%s: event %q", message, name)
	}
	return data
}

// serveSSE serves a server over HTTP.
func serveSSE(t *testing.T, f *Server) string {
	t.Helper()
	web := httptest.NewServer(f.Handler())
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL
}

// TestSSE: a client of 2024-11-05 lists and calls at the address of the fleet and at the one
// of a device. It may initialize twice, as Home Assistant does.
func TestSSE(t *testing.T) {
	f := newServer(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		call.Target.Tool = &ferrule.Tool{}
		return &ferrule.Result{Value: json.RawMessage(`{"moved":"` + call.Device + `"}`)}, nil
	}, ferrule.Tool{Name: "move", Effect: ferrule.Changes})
	url := serveSSE(t, f)
	for path, tool := range map[string]string{"/mcp": "robot__move", "/mcp/devices/robot": "move"} {
		c := openSSE(t, url, path, "")
		for range 2 {
			if got := c.ask(hello); !strings.Contains(got, `"protocolVersion":"2024-11-05"`) || !strings.Contains(got, `"tools":{"listChanged":true}`) {
				t.Fatalf("%s: %s", path, got)
			}
			c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}
		if got := c.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); !strings.Contains(got, `"name":"`+tool+`"`) {
			t.Errorf("%s: %s", path, got)
		}
		if got := c.ask(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"` + tool + `"}}`); !strings.Contains(got, `"id":3`) || !strings.Contains(got, `"moved":"robot"`) {
			t.Errorf("%s: %s", path, got)
		}
		if all := f.Connected(); len(all) != 1 || !all[0].Session || all[0].Calls != 1 {
			t.Errorf("%s: the agents are %+v", path, all)
		}
		c.leave()
		wait.For(t, "the session ends", func() bool { return f.Sessions() == 0 })
	}
}

// TestSSERefused: what Streamable HTTP refuses, HTTP+SSE refuses as well.
func TestSSERefused(t *testing.T) {
	f := newServer(t, nil)
	all := resourceTokens(t)
	all["other"] = identity.Credential{Who: ferrule.Principal{Role: ferrule.Agent, Name: "cursor", Auth: ferrule.AuthOAuth, Scopes: scopesOf(t, "endanger")}}
	f.parts.Verify, f.parts.Open = all.verify, closed
	url := serveSSE(t, f)
	for token, want := range map[string]int{"": 401, "garbage": 401, "few": 403, "good": 200} {
		ctx, cancel := context.WithCancel(t.Context())
		if resp := get(ctx, t, url+"/mcp", token); resp.StatusCode != want {
			t.Errorf("a stream with the token %q: %s", token, resp.Status)
		}
		cancel()
	}
	if resp := get(t.Context(), t, url+"/mcp/devices/ghost", "good"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a stream of an unknown device: %s", resp.Status)
	}
	c := openSSE(t, url, "/mcp", "good")
	for _, test := range []struct {
		name, token, url, kind, origin, host, body string
		want                                       int
	}{
		{name: "no token", want: 401},
		{name: "the token of another", token: "other", want: 403},
		{name: "another session", token: "good", url: url + "/mcp?session=AAAA", want: 404},
		{name: "a form", token: "good", kind: "text/plain", want: 415},
		{name: "a page of another site", token: "good", origin: "https://evil.example", want: 403},
		{name: "another host", token: "good", host: "evil.example", want: 403},
		{name: "a member twice", token: "good", body: `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, want: 400},
		{name: "a batch", token: "good", body: "[" + hello + "]", want: 400},
		{name: "no JSON", token: "good", body: `{`, want: 400},
		{name: "too large", token: "good", body: `"` + strings.Repeat("a", 1<<20) + `"`, want: 413},
		{name: "all right", token: "good", want: 202},
	} {
		if test.url == "" {
			test.url = c.url
		}
		if test.body == "" {
			test.body = hello
		}
		if test.kind == "" {
			test.kind = "application/json"
		}
		r, err := http.NewRequest(http.MethodPost, test.url, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", test.kind)
		if test.token != "" {
			r.Header.Set("Authorization", "Bearer "+test.token)
		}
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		r.Host = test.host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%s: got %s, want %d", test.name, resp.Status, test.want)
		}
	}
	if name, data := c.next(); name != "message" || !strings.Contains(data, `"id":1`) {
		t.Errorf("%s: %s", name, data)
	}
}

// TestSSELimits: sessions of HTTP+SSE count, and one that is never used ends.
func TestSSELimits(t *testing.T) {
	f := newServer(t, nil)
	f.parts.Config.Sessions = 2
	limited := New(f.parts)
	limited.http.Deadlines.Request = 5 * time.Second
	url := serveSSE(t, limited)
	used := openSSE(t, url, "/mcp", "")
	used.ask(hello)
	unused := openSSE(t, url, "/mcp", "")
	if resp := get(t.Context(), t, url+"/mcp", ""); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a third session: %s", resp.Status)
	}
	if name, _ := unused.next(); name != "" {
		t.Errorf("an unused session got %q", name)
	}
	wait.For(t, "the unused session ends", func() bool { return limited.Sessions() == 1 })
	if got := used.ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); !strings.Contains(got, `"id":2`) {
		t.Error(got)
	}
}

// TestSSELeaves: a client that disconnects cancels its call, because it cannot come back for
// the outcome, and its session is reported as ended.
func TestSSELeaves(t *testing.T) {
	called, cancelled, ended := make(chan string, 1), make(chan struct{}), make(chan string, 4)
	f := newServer(t, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		call.Target.Tool = &ferrule.Tool{}
		called <- call.Session
		<-ctx.Done()
		close(cancelled)
		return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled")
	}, ferrule.Tool{Name: "move", Effect: ferrule.Changes})
	f.parts.SessionEnded = func(session string) { ended <- session }
	c := openSSE(t, serveSSE(t, f), "/mcp", "")
	c.ask(hello)
	if status := c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"robot__move"}}`); status != http.StatusAccepted {
		t.Fatal(status)
	}
	session := <-called
	c.leave()
	for what, ch := range map[string]func() string{
		"the call is cancelled": func() string { <-cancelled; return "" },
		"the session has ended": func() string { return <-ended },
	} {
		got := make(chan string, 1)
		go func() { got <- ch() }()
		select {
		case name := <-got:
			if name != "" && name != session {
				t.Errorf("%s: %q, want %q", what, name, session)
			}
		case <-time.After(wait.Ample):
			t.Errorf("not: %s", what)
		}
	}
	if status := c.send(hello); status != http.StatusNotFound {
		t.Errorf("a message after the end: %d", status)
	}
}

// FuzzSSEMessage posts messages that may be anything. The session answers or refuses, and is
// still good afterwards.
func FuzzSSEMessage(f *testing.F) {
	for _, seed := range []string{hello, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":"a","result":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `[]`, `{}`, `null`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		server := newServer(t, func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil })
		c := openSSE(t, serveSSE(t, server), "/mcp", "")
		c.ask(hello)
		switch status := c.send(message); status {
		case http.StatusAccepted, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Fatalf("%d", status)
		}
		const last = "the-last-one"
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"ping"}`, last))
		for {
			name, data := c.next()
			if name == "" {
				t.Fatal("the session has ended")
			}
			if strings.Contains(data, last) {
				return
			}
		}
	})
}
