// Package model stands in for a language model, so that real agent programs can be
// driven without an account: it speaks the protocols in which they ask a model, and
// the test says what it answers.
//
//	agent ── /v1/messages ─────────┐
//	      ── /v1/responses ────────┼─▶ turn ─▶ the test: Offered, Call, Say
//	      ── /v1/chat/completions ─┘
//
// It listens on loopback. It is also the proxy to the rest of the world, which it
// refuses at once and remembers, so that no program waits for what is out of reach.
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

// Tool is a tool as an agent offers it to a model.
type Tool struct {
	Namespace string // of the name, where the protocol has such
	Name      string
	Schema    json.RawMessage // of the arguments
	Searched  bool            // only its name was told until it was searched for
}

// FullName is the name with its namespace.
func (t Tool) FullName() string {
	if t.Namespace == "" {
		return t.Name
	}
	return t.Namespace + "__" + t.Name
}

// Model is a model that runs. Its methods end the test when ctx ends, and are called
// by the goroutine of the test.
type Model struct {
	t      testing.TB
	server *httptest.Server
	turns  chan turn
	now    *turn // what is not answered yet
	calls  int

	mu      sync.Mutex
	outside []string
}

// Start runs a model, which ends with the test.
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
			http.Error(w, "there is nothing but this machine", http.StatusForbidden)
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

// URL is where the model is, without the path of a protocol.
func (m *Model) URL() string { return m.server.URL }

// Outside is which hosts were asked for that are not this machine.
func (m *Model) Outside() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.outside)
	return slices.Compact(slices.Clone(m.outside))
}

// Offered waits until the agent asks what to do, and returns the tool that it offers
// under a name that ends so. A tool of which it gives but the name is searched for, as
// a model is told to.
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
		m.t.Fatalf("no tool is offered whose name ends in %s, but %s", suffix, m.now.names())
	}
	found := m.Call(ctx, m.now.tools[search], fmt.Sprintf(`{"query":"select:%s","max_results":1}`, names[0]))
	if i := slices.IndexFunc(m.now.tools, ends); i >= 0 {
		tool := m.now.tools[i]
		tool.Searched = true
		return tool
	}
	m.t.Fatalf("%s was searched for, and what came is %s; offered are %s", names[0], found, m.now.names())
	return Tool{}
}

// Call has the agent call a tool, and returns the result that it comes back with.
func (m *Model) Call(ctx context.Context, tool Tool, args string) string {
	m.t.Helper()
	m.next(ctx)
	m.calls++
	id := fmt.Sprintf("call_%d", m.calls)
	m.answer(answer{id: id, tool: tool, args: args})
	m.next(ctx)
	result, ok := m.now.results[id]
	if !ok {
		m.t.Fatalf("the agent asks again, and has no result of %s %s", tool.FullName(), args)
	}
	return result
}

// Say ends what the agent was at with a text.
func (m *Model) Say(ctx context.Context, text string) {
	m.t.Helper()
	m.next(ctx)
	m.answer(answer{text: text})
}

// next waits for the agent to ask, unless it has.
func (m *Model) next(ctx context.Context) {
	m.t.Helper()
	if m.now != nil {
		return
	}
	select {
	case turn := <-m.turns:
		m.now = &turn
	case <-ctx.Done():
		m.t.Fatalf("the agent does not ask the model: %v", context.Cause(ctx))
	}
}

func (m *Model) answer(a answer) {
	m.now.answer <- a
	m.now = nil
}

// turn is one question of an agent: what is to be done next?
type turn struct {
	tools   []Tool
	text    string            // all that was said, one after the other
	results map[string]string // of calls, by their IDs
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

// dialect is a protocol in which agents ask.
type dialect interface {
	// read reads a question.
	read(body []byte) (turn, error)
	// write writes an answer, as a stream of events.
	write(s stream, a answer)
}

// serve hands questions to the test, and its answers back. A question without any
// tools is one that the agent asks for itself, such as for a title.
func (m *Model) serve(d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		turn, err := d.read(body)
		if err != nil {
			m.t.Errorf("%s: %v\n%s", r.URL.Path, err, body)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		said := answer{text: "A lamp"}
		if len(turn.tools) > 0 {
			turn.answer = make(chan answer, 1)
			select {
			case m.turns <- turn:
			case <-r.Context().Done():
				return
			}
			select {
			case said = <-turn.answer:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		d.write(stream{w}, said)
	}
}

// object is an object of JSON.
type object = map[string]any

// stream is an answer as a stream of events.
type stream struct{ w io.Writer }

// event sends an event that has its type in its data.
func (s stream) event(kind string, data object) {
	data["type"] = kind
	fmt.Fprintf(s.w, "event: %s\n", kind)
	s.data(data)
}

func (s stream) data(data object) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", text)
}

// text is what stands in content: a string, or parts of which some have a text.
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
