// Package model is a scripted language model for tests of real agent programs. It serves
// the APIs of model providers, and the test decides what the model answers. No account is
// needed.
//
//	agent ── /v1/messages ─────────┐
//	      ── /v1/responses ────────┼─▶ turn ─▶ the test: Offered, Call, Say
//	      ── /v1/chat/completions ─┘
//
// It listens on loopback. It is also an HTTP proxy that refuses and records every other
// host, so that no program waits for one.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Tool is a tool that an agent offers to the model.
type Tool struct {
	Namespace string // of the name; empty if the API has none
	Name      string
	Schema    json.RawMessage // of the arguments
	Searched  bool            // the agent sent only its name until the model searched for it
}

// FullName returns the name with its namespace.
func (t Tool) FullName() string {
	if t.Namespace == "" {
		return t.Name
	}
	return t.Namespace + "__" + t.Name
}

// Model is a running model. Its methods fail the test when ctx ends. They must be called
// by the goroutine of the test.
type Model struct {
	t      testing.TB
	server *httptest.Server
	turns  chan turn
	now    *turn // not answered yet
	calls  int

	mu      sync.Mutex
	outside []string
}

// Start starts a model that ends with the test.
func Start(t testing.TB) *Model {
	t.Helper()
	m := &Model{t: t, turns: make(chan turn)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", m.serve(messages{}))
	mux.HandleFunc("POST /v1/responses", m.serve(responses{}))
	mux.HandleFunc("POST /v1/chat/completions", m.serve(completions{}))
	m.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || r.URL.IsAbs() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.outside = append(m.outside, r.Host)
			http.Error(w, "other hosts are not reachable", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		m.server.CloseClientConnections()
		m.server.Close()
	})
	return m
}

// URL returns the base URL, without the path of an API.
func (m *Model) URL() string { return m.server.URL }

// Outside returns the other hosts that programs tried to reach.
func (m *Model) Outside() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.outside)
	return slices.Compact(slices.Clone(m.outside))
}

// Offered waits for the agent's request, and returns the offered tool whose name ends in
// suffix. If the agent sent only its name, Offered calls the agent's search tool first,
// as a model is told to.
func (m *Model) Offered(ctx context.Context, suffix string) Tool {
	m.t.Helper()
	m.next(ctx)
	ends := func(t Tool) bool { return strings.HasSuffix(t.Name, suffix) }
	if i := slices.IndexFunc(m.now.tools, ends); i >= 0 {
		return m.now.tools[i]
	}
	search := slices.IndexFunc(m.now.tools, func(t Tool) bool { return t.Name == "ToolSearch" })
	names := slices.DeleteFunc(strings.Fields(m.now.text), func(s string) bool { return !strings.HasSuffix(s, suffix) })
	if search < 0 || len(names) == 0 {
		m.t.Fatalf("no offered tool ends in %s; offered: %s", suffix, m.now.names())
	}
	found := m.Call(ctx, m.now.tools[search], fmt.Sprintf(`{"query":"select:%s","max_results":1}`, names[0]))
	if i := slices.IndexFunc(m.now.tools, ends); i >= 0 {
		tool := m.now.tools[i]
		tool.Searched = true
		return tool
	}
	m.t.Fatalf("searching for %s returned %s; offered: %s", names[0], found, m.now.names())
	return Tool{}
}

// Call makes the agent call a tool, and returns the result.
func (m *Model) Call(ctx context.Context, tool Tool, args string) string {
	m.t.Helper()
	m.next(ctx)
	m.calls++
	id := fmt.Sprintf("call_%d", m.calls)
	m.answer(answer{id: id, tool: tool, args: args})
	m.next(ctx)
	result, ok := m.now.results[id]
	if !ok {
		m.t.Fatalf("the next request has no result of %s %s", tool.FullName(), args)
	}
	return result
}

// Say ends the turn of the agent with a text.
func (m *Model) Say(ctx context.Context, text string) {
	m.t.Helper()
	m.next(ctx)
	m.answer(answer{text: text})
}

// next waits for the next request, unless one is open.
func (m *Model) next(ctx context.Context) {
	m.t.Helper()
	if m.now != nil {
		return
	}
	select {
	case turn := <-m.turns:
		m.now = &turn
	case <-ctx.Done():
		m.t.Fatalf("no request from the agent: %v", context.Cause(ctx))
	}
}

func (m *Model) answer(a answer) {
	m.now.answer <- a
	m.now = nil
}

// turn is one request of an agent.
type turn struct {
	tools   []Tool
	text    string            // of all messages
	results map[string]string // of calls, by id
	answer  chan answer
}

func (t *turn) names() string {
	var names []string
	for _, tool := range t.tools {
		names = append(names, tool.FullName())
	}
	return strings.Join(names, " ")
}

// answer is the call of a tool, or a text.
type answer struct {
	id   string
	tool Tool
	args string
	text string
}

// api is the API of a model provider.
type api interface {
	// read decodes a request.
	read(body []byte) (turn, error)
	// write writes an answer as a stream of events.
	write(s stream, a answer)
}

// serve passes requests to the test, and returns its answers. A request without tools is
// for the agent's own use, such as a title, and gets a fixed text.
func (m *Model) serve(a api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		turn, err := a.read(body)
		if err != nil {
			m.t.Errorf("%s: %v\n%s", r.URL.Path, err, body)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply := answer{text: "A lamp"}
		if len(turn.tools) > 0 {
			turn.answer = make(chan answer, 1)
			select {
			case m.turns <- turn:
			case <-r.Context().Done():
				return
			}
			select {
			case reply = <-turn.answer:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		a.write(stream{w}, reply)
	}
}

// object is a JSON object.
type object = map[string]any

// stream is an answer as a stream of events.
type stream struct{ w io.Writer }

// event sends an event whose data repeats its type.
func (s stream) event(typ string, data object) {
	data["type"] = typ
	fmt.Fprintf(s.w, "event: %s\n", typ)
	s.data(data)
}

func (s stream) data(data object) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", text)
}

// text is content: a string, or a list of parts with or without text.
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	var plain string
	if json.Unmarshal(data, &plain) == nil {
		*t = text(plain)
		return nil
	}
	var parts []struct{ Text string }
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*t += text(p.Text) + "\n"
	}
	return nil
}

// Mentions waits for the agent's request, and reports whether it offers a tool whose name
// ends in suffix, or mentions it in a text.
func (m *Model) Mentions(ctx context.Context, suffix string) bool {
	m.t.Helper()
	m.next(ctx)
	return strings.Contains(m.now.text, suffix) || slices.ContainsFunc(m.now.tools, func(t Tool) bool { return strings.HasSuffix(t.Name, suffix) })
}
