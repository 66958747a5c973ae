package check_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// socket is the server's side of a WebSocket, as some toys have it.
type socket struct {
	net.Conn
	number int // of the connections, from 1
	change func(s *socket, request, answer string) string
	last   atomic.Pointer[string] // request
	lists  atomic.Int32           // that were sent
}

func (s *socket) Recv(context.Context) (xiaozhi.Message, error) {
	data, op, err := wsutil.ReadClientData(s.Conn)
	if err != nil {
		return xiaozhi.Message{}, io.EOF
	}
	text := string(data)
	s.last.Store(&text)
	return xiaozhi.Message{Binary: op == ws.OpBinary, Data: data}, nil
}

func (s *socket) Send(_ context.Context, m xiaozhi.Message) error {
	if m.Binary {
		return wsutil.WriteServerMessage(s.Conn, ws.OpBinary, m.Data)
	}
	if last := s.last.Load(); s.change != nil && last != nil {
		if m.Data = []byte(s.change(s, *last, string(m.Data))); len(m.Data) == 0 {
			return nil
		}
	}
	return wsutil.WriteServerMessage(s.Conn, ws.OpText, m.Data)
}

// serveSockets runs a device that listens for WebSockets until the test ends, and returns its
// URL.
func serveSockets(t *testing.T, run func(s *socket)) string {
	var number atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer conn.Close()
		run(&socket{Conn: conn, number: int(number.Add(1))})
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http") + "/ws"
}

// TestListeningToy checks toys that listen for WebSockets themselves: a good one, and one with
// faults.
func TestListeningToy(t *testing.T) {
	slow(t)
	for name, want := range map[string][]string{"": {}, "unescaped": {"xiaozhi.invalid-json"}, "other-ids": {"xiaozhi.unknown-id"}} {
		t.Run("toy "+name, func(t *testing.T) {
			t.Parallel()
			toy, err := sim.NewToy(1, name)
			if err != nil {
				t.Fatal(err)
			}
			url := serveSockets(t, func(s *socket) { toy.ServeConn(t.Context(), s, true) }) // how it ends does not matter
			judge(t, run(t, url), want, toyReaders)
		})
	}
}

// toyFaults change messages of a good toy, and are named after the finding.
var toyFaults = map[string]func(s *socket, request, answer string) string{
	"xiaozhi.no-answer":      on("initialize", func(string) string { return "" }),
	"xiaozhi.bad-info":       on("initialize", func(answer string) string { return strings.Replace(answer, `"serverInfo"`, `"server"`, 1) }),
	"xiaozhi.bad-tool":       firstTool(`{"name":5},`),
	"xiaozhi.bad-name":       firstTool(`{"name":"do it","description":"x","inputSchema":{"type":"object","properties":{}}},`),
	"xiaozhi.duplicate-tool": firstTool(`{"name":"self.get_device_status","description":"x","inputSchema":{"type":"object","properties":{}}},`),
	"xiaozhi.bad-text":       firstTool(`{"name":"hidden","description":"\u200b\u202e","inputSchema":{"type":"object","properties":{}}},`),
	"xiaozhi.bad-schema":     firstTool(`{"name":"broken","description":"x","inputSchema":{"type":"object","properties":5}},`),
	"xiaozhi.changing-list": func(s *socket, request, answer string) string {
		if s.number == 1 {
			return answer
		}
		return firstTool(`{"name":"new","description":"x","inputSchema":{"type":"object","properties":{}}},`)(s, request, answer)
	},
	"xiaozhi.wrong-result":   on(`"tools/call"`, func(answer string) string { return strings.Replace(answer, `"content"`, `"contents"`, 1) }),
	"xiaozhi.silent-error":   on("no_such_tool", func(string) string { return "" }),
	"xiaozhi.accepted-error": on("no_such_tool", func(answer string) string { return errorToResult(answer) }),
	"xiaozhi.lost-request": func(s *socket, request, answer string) string {
		if strings.Contains(answer, `"tools":[`) && s.lists.Add(1) == 3 { // the first of two at the same time
			return ""
		}
		return answer
	},
	"xiaozhi.slow-answers": on("no-such-method", func(answer string) string {
		time.Sleep(550 * time.Millisecond)
		return answer
	}),
	"xiaozhi.long-message": on(`"tools/call"`, func(answer string) string {
		return strings.Replace(answer, `"text":"`, `"text":"`+strings.Repeat("x", 70<<10), 1)
	}),
}

// on returns a fault of the answers to requests that contain a text.
func on(text string, change func(answer string) string) func(*socket, string, string) string {
	return func(_ *socket, request, answer string) string {
		if !strings.Contains(request, text) || !strings.Contains(answer, `"id"`) {
			return answer
		}
		return change(answer)
	}
}

// firstTool returns a fault that adds an entry to lists.
func firstTool(entry string) func(*socket, string, string) string {
	return on("tools/list", func(answer string) string { return strings.Replace(answer, `"tools":[`, `"tools":[`+entry, 1) })
}

// errorToResult replaces the error of an answer by a result.
func errorToResult(answer string) string {
	before, _, ok := strings.Cut(answer, `"error":`)
	if !ok {
		return answer
	}
	return before + `"result":{"content":[{"type":"text","text":"ok"}],"isError":false}}}`
}

// TestToyFaults checks that single faults of a toy are found by their IDs, and that nothing else
// is found.
func TestToyFaults(t *testing.T) {
	slow(t)
	t.Parallel()
	names := slices.Collect(maps.Keys(toyFaults))
	reports := checkAll(t, names, func(name string) (*check.Report, error) {
		toy, err := sim.NewToy(1, "")
		if err != nil {
			return nil, err
		}
		url := serveSockets(t, func(s *socket) {
			s.change = toyFaults[name]
			toy.ServeConn(t.Context(), s, true) // how it ends does not matter
		})
		return check.Run(t.Context(), target(t, url), check.Options{Actuate: true})
	})
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			judgeExact(t, reports[name], []string{name}, toyReaders)
			if reports[name].Actuated {
				t.Error("a toy cannot be actuated")
			}
		})
	}
}

// TestSocketFaults checks that faults of MCP servers which only a WebSocket permits are found.
func TestSocketFaults(t *testing.T) {
	slow(t)
	for _, fault := range []string{"mcp.answered-twice", "mcp.invalid-json", "mcp.lost-request", "mcp.closed-connection"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			url := serveSockets(t, func(s *socket) { serveSocket(s, fault) })
			judgeExact(t, run(t, url), []string{fault}, []string{"look"})
		})
	}
}

// serveSocket is an MCP server on a WebSocket with one fault.
func serveSocket(s *socket, fault string) {
	lists := 0
	for {
		m, err := s.Recv(context.Background())
		if err != nil {
			return
		}
		var req struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name, Cursor string }
		}
		if json.Unmarshal(m.Data, &req) != nil || req.ID == nil {
			continue
		}
		if req.Method == "tools/list" {
			lists++
		}
		switch {
		case fault == "mcp.lost-request" && lists == 3 && req.Method == "tools/list": // the first of two
			continue
		case fault == "mcp.closed-connection" && req.Method == "tools/call" && s.number == 1:
			return
		}
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, req.ID)
		if result := (badServer{}).result(req.Method, req.Params.Name, req.Params.Cursor); result != "" {
			answer = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, result)
		}
		messages := []string{answer}
		switch {
		case fault == "mcp.answered-twice" && req.Method == "tools/call":
			messages = append(messages, answer)
		case fault == "mcp.invalid-json" && req.Method == "tools/call":
			messages = append(messages, `{"jsonrpc":`)
		}
		for _, text := range messages {
			if wsutil.WriteServerMessage(s.Conn, ws.OpText, []byte(text)) != nil {
				return
			}
		}
	}
}
