package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/notify"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// serve serves a server over HTTP. Prepare is called before it begins.
func serve(t *testing.T, prepare func(*Server)) (*Server, string) {
	t.Helper()
	f := New(Parts{
		Config: DefaultConfig(), Catalog: catalog.New(catalog.DefaultConfig()), Version: "1", Log: slog.New(slog.DiscardHandler),
		Handle: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return nil, errors.New("not to be called")
		},
	})
	f.put("robot", ferrule.StateOnline, ferrule.TrustAdopted)
	prepare(f)
	server := httptest.NewServer(f.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return f, server.URL
}

// TestEndlessBody: a request that never ends is cut off.
func TestEndlessBody(t *testing.T) {
	_, url := serve(t, func(f *Server) { f.http.Deadlines.Request = 300 * time.Millisecond })
	for _, version := range []string{"2025-11-25", mcphttp.StatelessVersion} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nMcp-Protocol-Version: %s\r\nMcp-Method: tools/list\r\n"+
			"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", version)
		conn.SetReadDeadline(time.Now().Add(wait.Ample))
		start := time.Now()
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("%s: the request is not cut off: %v", version, err)
		}
		line, _, _ := strings.Cut(string(answer), "\r\n")
		t.Logf("%s: cut after %v: %s", version, time.Since(start).Round(time.Millisecond), line)
	}
}

// TestPanic: a request that makes the gateway panic gets an error, and the next is
// served.
func TestPanic(t *testing.T) {
	f, url := serve(t, func(*Server) {})
	for _, version := range []string{"2025-11-25", mcphttp.StatelessVersion} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		kept := f.parts.Catalog
		f.parts.Catalog = nil
		_, err = session.ListTools(t.Context(), nil)
		f.parts.Catalog = kept
		var wrong *jsonrpc.Error
		if !errors.As(err, &wrong) || wrong.Code != jsonrpc.CodeInternalError || !strings.Contains(wrong.Message, "the gateway failed at this request") {
			t.Errorf("%s: %v", version, err)
		}
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// TestPlain: clients can read whatever a device returns.
func TestPlain(t *testing.T) {
	for _, test := range []struct {
		value      string
		text       string
		structured bool
	}{
		{`{"a":1}`, `{"a":1}`, true},
		{" {\"a\":\r1,\r\"b\": \"c d\"}\r", `{"a":1,"b":"c d"}`, true},
		{"{\"a\":\"\xff\xfe\"}", "{\"a\":\"\ufffd\"}", true},
		{`"text"`, "text", false},
		{`[1]`, "[1]", false},
		{strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64), strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64), true},
		{strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), false},
		{`{"a":"` + strings.Repeat(`[{\"`, 100) + `"}`, `{"a":"` + strings.Repeat(`[{\"`, 100) + `"}`, true},
	} {
		got := (&view{}).succeeded("robot", &ferrule.Result{Value: []byte(test.value)}, true)
		text := got.Content[0].(*mcp.TextContent).Text
		if text != test.text || (got.StructuredContent != nil) != test.structured {
			t.Errorf("%q becomes %q and %s", test.value, text, got.StructuredContent)
		}
	}
}

// TestLogClient: the log has the name of the client and its protocol version.
func TestLogClient(t *testing.T) {
	for _, version := range []string{"2025-11-25", mcphttp.StatelessVersion} {
		var log bytes.Buffer
		_, url := serve(t, func(f *Server) {
			f.parts.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if want := `msg="agent: test 1 speaks MCP ` + version + `"`; !strings.Contains(log.String(), want) {
			t.Errorf("no %s in the log: %s", want, &log)
		}
	}
}

// TestStdioDisconnect: an agent that disconnects is not an error, whether reading or
// writing fails first.
func TestStdioDisconnect(t *testing.T) {
	f := newServer(t, nil)
	for _, writing := range []bool{false, true} {
		toUs, agentWrites := io.Pipe()
		agentReads, fromUs := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- f.Stdio(t.Context(), toUs, fromUs) }()
		fmt.Fprintln(agentWrites, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"a","version":"1"},"capabilities":{}}}`)
		if line, err := bufio.NewReader(agentReads).ReadString('\n'); err != nil || !strings.Contains(line, `"id":1`) {
			t.Fatalf("%s, %v", line, err)
		}
		if writing {
			agentReads.Close()
			fmt.Fprintln(agentWrites, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		} else {
			agentWrites.Close()
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("writing %t: %v", writing, err)
			}
		case <-time.After(wait.Ample):
			t.Fatalf("writing %t: the session goes on", writing)
		}
	}
}

// TestFutureVersions: an agent that asks for a future version, or for one without
// sessions, is served in the version that was agreed on.
func TestFutureVersions(t *testing.T) {
	for _, version := range []string{"2027-01-01", mcphttp.StatelessVersion, "DRAFT"} {
		f := asks(aText).server(t)
		toUs, requests := io.Pipe()
		answers, fromUs := io.Pipe()
		go f.Stdio(t.Context(), toUs, fromUs)
		t.Cleanup(func() { requests.Close() })
		lines := bufio.NewScanner(answers)
		exchange := func(request, want string) {
			t.Helper()
			if request != "" {
				fmt.Fprintln(requests, request)
			}
			if !lines.Scan() || !strings.Contains(lines.Text(), want) {
				t.Fatalf("%s: got %s, want %s", version, lines.Text(), want)
			}
		}
		exchange(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","clientInfo":{"name":"a","version":"1"},"capabilities":{"elicitation":{}}}}`,
			`"protocolVersion":"2025-11-25"`)
		fmt.Fprintln(requests, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		exchange(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"robot__move"}}`, `{"jsonrpc":"2.0","id":1,"method":"elicitation/create"`)
		exchange(`{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`, `"id":2,"result":`)
		f.viewAt("").group.ListChanged(notify.ToolsChanged)
		exchange("", "notifications/tools/list_changed")
	}
}

// TestOwnNames: on a loopback address, the name of this machine and the one in the URL of the
// gateway are accepted, and no others.
func TestOwnNames(t *testing.T) {
	f := newServer(t, nil)
	f.parts.URL, f.hostname = "https://gateway.example", "workbench"
	for host, want := range map[string]int{"workbench:3377": http.StatusOK, "Gateway.Example": http.StatusOK, "127.0.0.1:3377": http.StatusOK, "evil.example": http.StatusForbidden, "": http.StatusForbidden, "workbench.evil.example": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3377}))
		w := httptest.NewRecorder()
		f.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: got %d, want %d", host, w.Code, want)
		}
	}
}
