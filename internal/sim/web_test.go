package sim_test

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

	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`

// web is a client of a simulated board.
type web struct {
	t       *testing.T
	url     string
	session string // sent with each request, and set by each response with one
}

func newWeb(t *testing.T, cfg sim.WebConfig) (*web, *sim.Web) {
	t.Helper()
	cfg.Addr, cfg.Wait = "127.0.0.1:0", 50*time.Millisecond
	w, err := sim.ListenWeb(cfg)
	if err != nil {
		t.Fatal(err)
	}
	until(t, w.Run)
	return &web{t: t, url: w.URL()}, w
}

// do sends a request and returns status, body and response. Headers are name: value.
func (c *web) do(method, body string, headers ...string) (string, *http.Response) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	c.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if r.Close = true; c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { response.Body.Close() })
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	if response.Header.Get("Content-Type") == "text/event-stream" {
		return fmt.Sprint(response.StatusCode), response
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, data), response
}

// TestWeb checks that a board responds as mcpd does.
func TestWeb(t *testing.T) {
	c, board := newWeb(t, sim.WebConfig{})
	const gone = `404 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid session"}}`
	for _, test := range []struct{ method, body, session, want string }{
		{"GET", "", "", `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Not initialized"}}`},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "", `200 {"jsonrpc":"2.0","id":1,"result":{}}`}, // before initialize
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "any", `200 {`},
		{"POST", initialize, "", `200 {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25",`},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "any", gone},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "", `200 {`}, // without one, it is not checked
		{"DELETE", "", "any", gone},
		{"POST", "", "", `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"POST", "nonsense", "", `200 {"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"POST", "[nonsense", "", `200 {"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", `202 `},
		{"POST", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "", `202 `},
		{"POST", `{"jsonrpc":"2.0","id":7,"result":{}}`, "", `202 `},
		{"POST", `{"jsonrpc":"2.0","id":7,"error":{"code":1}}`, "", `200 {"jsonrpc":"2.0","id":7,"error":{"code":-32600,`},
		{"POST", `[{"id":1,"method":"ping"},{"method":"notifications/x"},{"id":"b","method":"ping"}]`, "", `200 [{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"b","result":{}}]`},
		{"POST", `[]`, "", `202 `},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"nonsense"}`, "", `200 {"jsonrpc":"2.0","id":1,"error":{"code":-32601,`},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, "", `200 {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Missing tool name"}}`},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pulse","arguments":{"token":5}}}`, "", `200 {"jsonrpc":"2.0","id":1,"error":{"code":-32602,`},
		{"OPTIONS", "", "", `204 `},
		{"PUT", "", "", `405 `},
	} {
		c.session = test.session
		if got, response := c.do(test.method, test.body); !strings.HasPrefix(got, test.want) || !response.Close {
			t.Errorf("%s %s: %s, want %s", test.method, test.body, got, test.want)
		}
	}
	if runs := board.Board.Runs(); len(runs) != 0 {
		t.Errorf("pulse ran with wrong arguments: %v", runs)
	}
}

// TestWebSession checks that the next client takes over the session, and that a restart is
// noticed by the missing session ID.
func TestWebSession(t *testing.T) {
	first, board := newWeb(t, sim.WebConfig{})
	second := &web{t: t, url: first.url}
	first.do("POST", initialize)
	second.do("POST", initialize)
	if got, _ := first.do("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); !strings.HasPrefix(got, "404 ") {
		t.Errorf("the first client: %s", got)
	}
	board.Restart()
	if got, response := second.do("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); !strings.HasPrefix(got, "200 ") || response.Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("after a restart: %s, %v", got, response.Header)
	}
}

// TestWebStreams checks that four streams are kept, with notifications, and no more.
func TestWebStreams(t *testing.T) {
	c, board := newWeb(t, sim.WebConfig{})
	c.do("POST", initialize)
	var last *http.Response
	for n := range 4 {
		var got string
		if got, last = c.do("GET", ""); got != "200" {
			t.Fatalf("stream %d: %s", n+1, got)
		}
	}
	if got, _ := c.do("GET", ""); !strings.HasPrefix(got, "503 ") {
		t.Errorf("the fifth stream: %s", got)
	}
	board.Notify(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	in := bufio.NewReader(last.Body)
	for _, want := range []string{"event: endpoint", "data: /mcp", "", "id: 1", "event: message", `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`} {
		if line, err := in.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
			t.Errorf("%q, %v, want %q", line, err, want)
		}
	}
	if n := board.EndStreams(); n != 4 {
		t.Errorf("%d streams ended", n)
	}
}

// TestWebGuards checks the token and the rate.
func TestWebGuards(t *testing.T) {
	c, _ := newWeb(t, sim.WebConfig{Token: "secret", Rate: 1})
	if got, response := c.do("POST", initialize); !strings.HasPrefix(got, `401 {"jsonrpc":"2.0","id":null,"error":{"code":-32000,`) || response.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("without the token: %s", got)
	}
	wait.For(t, "a request is too fast", func() bool {
		got, response := c.do("POST", initialize, "Authorization: Bearer secret")
		if strings.HasPrefix(got, "429 ") {
			return response.Header.Get("Retry-After") == "" && strings.Contains(got, "Rate limit exceeded")
		}
		if !strings.HasPrefix(got, "200 ") {
			t.Errorf("with the token: %s", got)
		}
		return false
	})
}

// TestWebWaits checks that a silent client, and one that does not close, block the board.
func TestWebWaits(t *testing.T) {
	const wait = time.Second
	w, err := sim.ListenWeb(sim.WebConfig{Addr: "127.0.0.1:0", Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	until(t, w.Run)
	host, _, _ := strings.Cut(strings.TrimPrefix(w.URL(), "http://"), "/")
	for name, sends := range map[string]string{
		"silent": "",
		"lazy":   "POST /mcp HTTP/1.1\r\nHost: board\r\nContent-Length: 2\r\n\r\n[]",
	} {
		start := time.Now()
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if io.WriteString(conn, sends); sends != "" {
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "HTTP/1.1 202 Accepted\r\n" {
				t.Errorf("%q, %v", line, err)
			}
		}
		(&web{t: t, url: w.URL()}).do("POST", initialize)
		if took := time.Since(start); took < wait/2 {
			t.Errorf("with a %s client, the next one waited %v", name, took)
		}
		conn.Close()
	}
	if w.Silent() != 1 {
		t.Errorf("%d silent connections", w.Silent())
	}
}
