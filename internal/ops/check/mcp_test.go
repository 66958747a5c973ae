package check_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// lamp returns a device that is an MCP server, with a tool that reads and one that does not.
func lamp(t *testing.T) *mcpserver.Device {
	board := thing.New("lamp", "1.0.0")
	thing.Tool(board, "read_lamp", "Return whether the lamp is on", func(context.Context, struct{}) (struct{ On bool }, error) {
		return struct{ On bool }{true}, nil
	}, thing.Reads())
	thing.Tool(board, "switch", "Switch the lamp on or off", func(context.Context, struct{}) (struct{}, error) {
		t.Error("the lamp was switched")
		return struct{}{}, nil
	})
	return mcpserver.New(board, mcpserver.Config{})
}

// serve runs a server on a port until the test ends, and returns its address.
func serve(t *testing.T, run func(ctx context.Context, ln net.Listener) error) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func run(t *testing.T, text string) *check.Report {
	t.Helper()
	report, err := check.Run(t.Context(), target(t, text), check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestServers checks that nothing is found on a good MCP server, over HTTP and a WebSocket.
func TestServers(t *testing.T) {
	t.Run("http", func(t *testing.T) {
		judge(t, run(t, "http://"+serve(t, lamp(t).Serve)+"/mcp"), nil, []string{"read_lamp"})
	})
	t.Run("ws", func(t *testing.T) {
		judge(t, run(t, "ws://"+serve(t, lamp(t).ServeWebSocket)+"/"), nil, []string{"read_lamp"})
	})
}

// newerVersion is not a fault.
const newerVersion = "newer version"

// badServer is an MCP server over HTTP with one fault.
type badServer struct{ fault string }

func (s badServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name   string
			Cursor string
		}
	}
	data, err := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || err != nil {
		if s.fault == "mcp.bad-stream" {
			fmt.Fprintln(w, "hello")
			return
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if json.Unmarshal(data, &req) != nil && s.fault != "mcp.accepted-error" || r.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.Header.Get("Origin") != "" && s.fault != "mcp.origin-ignored" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if id := r.Header.Get("Mcp-Session-Id"); id != "" && id != "one" && s.fault != "mcp.session-ignored" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if req.ID == nil && s.fault != "mcp.answered-notification" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	switch {
	case s.fault == "mcp.unknown-id":
		req.ID = json.RawMessage("5")
	case s.fault == "mcp.closed-connection" && req.Method == "tools/call", s.fault == "mcp.lost-request" && string(req.ID) == "9001":
		panic(http.ErrAbortHandler)
	case s.fault == "mcp.unanswered-call" && req.Params.Name == "look", s.fault == "mcp.stopped-answering" && (req.Method == "tools/call" || req.Method == "ping"):
		<-r.Context().Done()
		return
	case s.fault == "mcp.slow-answers" && req.Method == "ping":
		time.Sleep(550 * time.Millisecond)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, req.ID)
	result := s.result(req.Method, req.Params.Name, req.Params.Cursor)
	switch {
	case s.fault == "mcp.silent-error" && result == "":
		<-r.Context().Done()
		return
	case s.fault == "mcp.wrong-code" && result == "":
		body = strings.Replace(body, "-32601", "-1", 1)
	case result != "":
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, result)
	}
	switch s.fault {
	case "mcp.no-json":
		body = "<html>"
	case "mcp.wrong-status":
		w.Header().Set("Content-Type", "text/html")
	case "mcp.long-message":
		body = strings.Repeat("x", 5<<20)
	}
	if req.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", "one")
	}
	fmt.Fprintln(w, body)
}

// result returns the result of a method; "" if there is none.
func (s badServer) result(method, tool, cursor string) string {
	switch method {
	case "initialize":
		switch s.fault {
		case "mcp.bad-info":
			return `{"protocolVersion":"2025-06-18","capabilities":{}}`
		case "mcp.bad-version":
			return `{"protocolVersion":"7","capabilities":{},"serverInfo":{"name":"bad","version":"1"}}`
		case newerVersion:
			return `{"protocolVersion":"2031-02-03","capabilities":{},"serverInfo":{"name":"bad","version":"1"}}`
		case "mcp.no-answer":
			return ""
		}
		return `{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"bad","version":"1"}}`
	case "ping":
		return "{}"
	case "tools/list":
		return s.tools(cursor)
	case "tools/call":
		return s.call(tool)
	}
	if s.fault == "mcp.accepted-error" {
		return "{}"
	}
	return ""
}

func (s badServer) tools(cursor string) string {
	const schema = `"inputSchema":{"type":"object","properties":{}}`
	entry := `{"name":"look","description":"Look","annotations":{"readOnlyHint":true},` + schema + `}`
	switch s.fault {
	case "mcp.no-tools":
		return `{"tools":[]}`
	case "mcp.bad-tool":
		entry += `,{"name":5}`
	case "mcp.bad-name":
		entry += `,{"name":"do it",` + schema + `}`
	case "mcp.duplicate-tool":
		entry += "," + entry
	case "mcp.bad-text":
		entry += `,{"name":"hidden","description":"\u200b\u202e",` + schema + `}`
	case "mcp.bad-schema":
		entry += `,{"name":"broken","inputSchema":{"type":"object","properties":5}}`
	case "mcp.changing-list":
		entry += fmt.Sprintf(`,{"name":"at_%d",%s}`, time.Now().UnixNano(), schema)
	case "mcp.page-loop":
		return `{"tools":[` + entry + `],"nextCursor":"again"}`
	case "mcp.lost-cursor":
		if cursor != "" {
			return ""
		}
		return `{"tools":[` + entry + `],"nextCursor":"next"}`
	}
	return `{"tools":[` + entry + `]}`
}

func (s badServer) call(tool string) string {
	switch {
	case tool != "look":
		return ""
	case s.fault == "mcp.failed-call":
		return `{"content":[{"type":"text","text":"no sensor"}],"isError":true}`
	case s.fault == "mcp.wrong-result":
		return `{"value":5}`
	case s.fault == "mcp.slow-call":
		time.Sleep(1200 * time.Millisecond)
	}
	return `{"content":[{"type":"text","text":"5"}]}`
}

// serverFaults are findings that follow from others.
var serverFaults = map[string][]string{
	"mcp.long-message": {"mcp.no-answer"}, "mcp.lost-cursor": {"mcp.no-tools"}, "mcp.no-json": {"mcp.no-answer"}, "mcp.page-loop": {"mcp.duplicate-tool"},
	"mcp.unknown-id": {"mcp.lost-request"},
}

// TestBadServers checks that each fault of an MCP server over HTTP is found by its ID, and
// nothing else.
func TestBadServers(t *testing.T) {
	slow(t)
	faults := []string{
		"", newerVersion, "mcp.accepted-error", "mcp.answered-notification", "mcp.bad-info", "mcp.bad-name", "mcp.bad-schema", "mcp.bad-stream", "mcp.bad-text",
		"mcp.bad-tool", "mcp.bad-version", "mcp.changing-list", "mcp.closed-connection", "mcp.duplicate-tool", "mcp.failed-call", "mcp.long-message", "mcp.lost-cursor", "mcp.lost-request",
		"mcp.no-answer", "mcp.no-json", "mcp.no-tools", "mcp.origin-ignored", "mcp.page-loop", "mcp.session-ignored", "mcp.silent-error",
		"mcp.slow-answers", "mcp.slow-call", "mcp.stopped-answering", "mcp.unanswered-call", "mcp.unknown-id", "mcp.wrong-code", "mcp.wrong-result", "mcp.wrong-status",
	}
	reports := checkAll(t, faults, func(fault string) (*check.Report, error) {
		server := httptest.NewServer(badServer{fault})
		defer server.Close()
		return check.Run(t.Context(), target(t, server.URL+"/mcp"), check.Options{})
	})
	for _, fault := range faults {
		t.Run("server "+fault, func(t *testing.T) {
			want := slices.DeleteFunc([]string{fault}, func(s string) bool { return s == "" || s == newerVersion })
			judgeExact(t, reports[fault], append(want, serverFaults[fault]...), []string{"look"})
		})
	}
}

// longList is an MCP server with long pages that do not end. It counts those that it sent.
type longList struct{ pages atomic.Int32 }

func (l *longList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     json.RawMessage
		Method string
		Params struct{ Cursor string }
	}
	data, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(data, &req) != nil || req.Method != "tools/list" || r.Header.Get("Mcp-Session-Id") != "one" || len(req.ID) > 3 { // those at the same time have long IDs
		r.Body = io.NopCloser(bytes.NewReader(data))
		badServer{}.ServeHTTP(w, r)
		return
	}
	l.pages.Add(1)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"look%s","inputSchema":{"type":"object"},"x":"%s"}],"nextCursor":"%[2]s1"}}`,
		req.ID, req.Params.Cursor, strings.Repeat("x", 3<<20))
}

// TestLongList checks that a list which is long in total is found, and not read to its end.
func TestLongList(t *testing.T) {
	slow(t)
	list := &longList{}
	server := httptest.NewServer(list)
	defer server.Close()
	report := run(t, server.URL+"/mcp")
	judgeExact(t, report, []string{"mcp.page-loop"}, nil)
	if n := list.pages.Load(); n > 3*3 { // each of the three lists that a check reads
		t.Errorf("the check read %d pages of 3 MiB", n)
	}
}
