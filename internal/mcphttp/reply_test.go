package mcphttp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestReplyJSON: a response is JSON where nothing was streamed, in all protocol
// versions, and a stream otherwise.
func TestReplyJSON(t *testing.T) {
	for _, version := range []string{"", "2024-11-05", "2025-06-18", SessionVersion, StatelessVersion} {
		t.Run(version, func(t *testing.T) {
			m := newMover(t)
			m.version = version
			close(m.proceed)
			meta := map[bool]string{true: `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},`}[version == StatelessVersion]
			if version == StatelessVersion {
				m.session = ""
			}
			quick := fmt.Sprintf(`{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"move","_meta":{%s"x":1}}}`, meta)
			for attempt := 0; ; attempt++ { // the machine may be slow at times
				resp := m.send(t.Context(), http.MethodPost, "", quick)
				body, err := io.ReadAll(resp.Body)
				if err != nil || !strings.Contains(string(body), `"moved":true`) {
					t.Fatalf("%d %s, %v", resp.StatusCode, body, err)
				}
				var answer struct{ ID string }
				if resp.Header.Get("Content-Type") == jsonType && json.Unmarshal(body, &answer) == nil && answer.ID == "q" {
					break
				}
				if attempt == 100 || version < SessionVersion {
					t.Fatalf("%s %s", resp.Header.Get("Content-Type"), body)
				}
			}
			streamed := fmt.Sprintf(`{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"move","_meta":{%s"progressToken":1}}}`, meta)
			resp := m.send(t.Context(), http.MethodPost, "", streamed)
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.Header.Get("Content-Type") != streamType || !strings.Contains(string(body), `"half"`) || !strings.Contains(string(body), `"moved":true`) {
				t.Errorf("%s %s, %v", resp.Header.Get("Content-Type"), body, err)
			}
		})
	}
}

// TestReplySlow: a client whose version has no opening event gets JSON however long the
// call takes.
func TestReplySlow(t *testing.T) {
	m := newMover(t)
	m.version = ""
	time.AfterFunc(5*openingDelay, func() { close(m.proceed) })
	resp := m.send(t.Context(), http.MethodPost, "", strings.Replace(move, `,"_meta":{"progressToken":1}`, "", 1))
	if body, err := io.ReadAll(resp.Body); err != nil || !json.Valid(body) || resp.Header.Get("Content-Type") != jsonType {
		t.Errorf("%s, %v", body, err)
	}
}

// TestReplyWaits: while a call runs, its client gets a byte every few seconds. Home Assistant
// gives up after five without one.
func TestReplyWaits(t *testing.T) {
	m := newMover(t)
	m.version = SessionVersion
	start := time.Now()
	resp := m.send(t.Context(), http.MethodPost, "", strings.Replace(move, `,"_meta":{"progressToken":1}`, "", 1))
	lines := bufio.NewScanner(resp.Body)
	comments := 0
	for lines.Scan() {
		if lines.Text() == strings.TrimSpace(comment) {
			if comments++; comments == 2 {
				close(m.proceed)
			}
		}
		if strings.Contains(lines.Text(), `"moved":true`) {
			t.Logf("%d comments in %v", comments, time.Since(start).Round(time.Millisecond))
			return
		}
	}
	t.Errorf("no response: %v", lines.Err())
}

// TestCodes: what is wrong with a request is a JSON-RPC error with the code for it.
func TestCodes(t *testing.T) {
	m := newMover(t)
	close(m.proceed)
	session := m.session
	for _, test := range []struct {
		name, session, body string
		status, code        int
		id                  string
	}{
		{"unknown method", session, `{"jsonrpc":"2.0","id":"a","method":"tools/fly"}`, 200, -32601, `"a"`},
		{"unknown notification", session, `{"jsonrpc":"2.0","method":"notifications/fly"}`, 400, -32601, "null"},
		{"no JSON", session, `{"jsonrpc":"2.0","id":1,`, 400, -32700, "null"},
		{"empty", session, ``, 400, -32700, "null"},
		{"no JSON-RPC", session, `{"id":7}`, 400, -32600, "7"},
		{"no object", session, `7`, 400, -32600, "null"},
		{"duplicate id", session, `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, 400, -32600, "null"},
		{"duplicate argument", session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"move","arguments":{"pin":1,"pin":2}}}`, 400, -32600, "null"},
		{"before initialize", "", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, 400, -32600, "3"},
		{"call before initialize", "", move, 400, -32600, "1"},
		{"unknown session", "nobody", `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`, 404, -32600, "4"},
		{"too large", session, `{"jsonrpc":"2.0","id":5,"method":"` + strings.Repeat("x", MaxBody) + `"}`, 413, -32600, "null"},
	} {
		for _, version := range []string{"", "2025-06-18", SessionVersion} {
			m.version, m.session = version, test.session
			resp := m.send(t.Context(), http.MethodPost, "", test.body)
			body, err := io.ReadAll(resp.Body)
			var answer struct {
				Version string          `json:"jsonrpc"`
				ID      json.RawMessage `json:"id"`
				Error   struct {
					Code    int
					Message string
				}
			}
			if err != nil || json.Unmarshal(body, &answer) != nil || resp.StatusCode != test.status || resp.Header.Get("Content-Type") != jsonType ||
				answer.Version != "2.0" || string(answer.ID) != test.id || answer.Error.Code != test.code || answer.Error.Message == "" {
				t.Errorf("%s in %q: got %d %s, %v", test.name, version, resp.StatusCode, body, err)
			}
		}
	}
	if n := m.moved.Load(); n != 0 {
		t.Errorf("moved %d times", n)
	}
	if n := m.Sessions(); n != 1 {
		t.Errorf("%d sessions are open", n)
	}
}

// TestSecondStream: a second stream of notifications does not displace the first, unless
// it resumes it, and nothing is sent twice.
func TestSecondStream(t *testing.T) {
	m := newMover(t)
	close(m.proceed)
	var session *mcp.ServerSession
	for server := range m.config.Servers() {
		for s := range server.Sessions() {
			session = s
		}
	}
	say := func(text string) {
		t.Helper()
		if err := session.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{ProgressToken: 1, Message: text}); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(lines *bufio.Scanner, text string) (id string) {
		t.Helper()
		for {
			e, ok := next(lines)
			if !ok {
				t.Fatalf("the stream ends before %q", text)
			}
			if e.data != "" {
				if !strings.Contains(e.data, text) {
					t.Fatalf("got %s, want %q", e.data, text)
				}
				return e.id
			}
		}
	}
	say("before") // nobody is connected yet
	first := m.send(t.Context(), http.MethodGet, "", "")
	lines := bufio.NewScanner(first.Body)
	heard(lines, "before")
	if second := m.send(t.Context(), http.MethodGet, "", ""); second.StatusCode != http.StatusConflict {
		t.Fatalf("a second stream: %d", second.StatusCode)
	}
	say("one")
	last := heard(lines, "one")
	resumed := m.send(t.Context(), http.MethodGet, last, "")
	if _, err := io.ReadAll(first.Body); err != nil || resumed.StatusCode != http.StatusOK {
		t.Fatalf("a stream that resumes: %d, %v", resumed.StatusCode, err)
	}
	say("two")
	lines = bufio.NewScanner(resumed.Body)
	heard(lines, "two")
	resumed.Body.Close()
	wait.For(t, "no stream has an owner", func() bool {
		m.owners.mu.Lock()
		defer m.owners.mu.Unlock()
		return len(m.owners.byStream) == 0
	})
	say("three")
	again := m.send(t.Context(), http.MethodGet, "", "")
	say("four")
	lines = bufio.NewScanner(again.Body)
	heard(lines, "three")
	heard(lines, "four")
}

// TestStreamOver: a client that has all of a stream is told not to come back.
func TestStreamOver(t *testing.T) {
	m := newMover(t)
	close(m.proceed)
	resp := m.send(t.Context(), http.MethodPost, "", move)
	lines := bufio.NewScanner(resp.Body)
	var last sse
	for e, ok := next(lines); ok; e, ok = next(lines) {
		last = e
	}
	if !strings.Contains(last.data, "moved") {
		t.Fatalf("got %+v", last)
	}
	over := m.send(t.Context(), http.MethodGet, last.id, "")
	if body, err := io.ReadAll(over.Body); over.StatusCode != http.StatusNoContent || len(body) > 0 || err != nil {
		t.Errorf("got %d %q, %v", over.StatusCode, body, err)
	}
}

// FuzzPosted: whatever the body of a request is, it is refused or has one meaning.
func FuzzPosted(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`))
	f.Add([]byte(` [{"id":"a","method":"ping"},7]`))
	f.Add([]byte(`[1, [{"id":"a","method":"ping"}]]`))
	f.Add([]byte(`{"id":{"id":1},"method":5,"method":""}`))
	f.Add([]byte(`1E700`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := parsePosted(body)
		if err != nil {
			return
		}
		var all any
		exact := json.NewDecoder(bytes.NewReader(body))
		exact.UseNumber() // 1E700 is a number, though not one of Go
		if !json.Valid(body) || exact.Decode(&all) != nil {
			t.Fatalf("%q was accepted", body)
		}
		members, batch := all.([]any)
		for _, one := range members {
			if _, nested := one.([]any); nested {
				t.Errorf("%q has a batch in a batch", body)
			}
		}
		if batch != p.batch || p.id != nil && !json.Valid(p.id) {
			t.Errorf("%q became %+v", body, p)
		}
	})
}
