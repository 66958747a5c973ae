package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/model"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// recorder is a proxy in front of a gateway that records what a program declares, asks for
// and is told.
type recorder struct {
	url string

	mu       sync.Mutex
	version  string                     // of MCP, as the program names it last
	declared map[string]json.RawMessage // capabilities of the client
	sent     map[string]int             // methods of the program
	listened []string                   // params of subscriptions/listen
	told     map[string]int             // notifications of the gateway
}

func recordMCP(t *testing.T, gateway string) *recorder {
	t.Helper()
	to, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{declared: make(map[string]json.RawMessage), sent: make(map[string]int), told: make(map[string]int)}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = to.Scheme, to.Host, to.Host
		},
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			response.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(response.Body, &notifications{r: r}), response.Body}
			return nil
		},
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		r.record(body)
		request.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, request)
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	r.url = web.URL + "/mcp"
	return r
}

// record records a request.
func (r *recorder) record(body []byte) {
	var m struct {
		Method string
		Params struct {
			ProtocolVersion string
			Capabilities    map[string]json.RawMessage
			Notifications   json.RawMessage
			Meta            struct {
				Version      string                     `json:"io.modelcontextprotocol/protocolVersion"`
				Capabilities map[string]json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
			} `json:"_meta"`
		}
	}
	if json.Unmarshal(body, &m) != nil || m.Method == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[m.Method]++
	maps.Copy(r.declared, m.Params.Capabilities)
	maps.Copy(r.declared, m.Params.Meta.Capabilities)
	if v := m.Params.ProtocolVersion + m.Params.Meta.Version; v != "" {
		r.version = v
	}
	if m.Method == "subscriptions/listen" {
		r.listened = append(r.listened, string(m.Params.Notifications))
	}
}

// notifications finds the notifications in a stream of events.
type notifications struct {
	r    *recorder
	line []byte
}

var notificationMethod = regexp.MustCompile(`"method":"(notifications/[^"]+)"`)

func (n *notifications) Write(p []byte) (int, error) {
	n.line = append(n.line, p...)
	for {
		line, rest, found := bytes.Cut(n.line, []byte("\n"))
		if !found {
			return len(p), nil
		}
		n.line = bytes.Clone(rest)
		if m := notificationMethod.FindSubmatch(line); m != nil {
			n.r.mu.Lock()
			n.r.told[string(m[1])]++
			n.r.mu.Unlock()
		}
	}
}

// count returns how often a method was sent, in either direction.
func (r *recorder) count(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[method] + r.told[method]
}

// abilities is what a program can do, at the versions in internal/testenv/agents.
type abilities struct {
	version  string
	declared string // capabilities
	// relists reports whether it lists tools again when the list has changed.
	relists bool
	// reads is its tool by which a model reads resources, or empty.
	reads string
}

// agentAbilities are the results in docs/reference/agents.md.
var agentAbilities = map[string]abilities{
	"claude":   {modern, `{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`, true, "ReadMcpResourceTool"},
	"codex":    {"2025-06-18", `{"elicitation":{"form":{},"url":{}}}`, false, ""},
	"opencode": {legacy, `{"roots":{}}`, true, ""},
}

// TestAgentAbilities checks what agent programs declare, and what they do when the list of
// tools changes: whether they support tasks and skills, and whether a notification reaches
// them.
func TestAgentAbilities(t *testing.T) {
	eachProgram(t, func(p agentProgram, path string) {
		t.Run(p.name, func(t *testing.T) { p.checkAbilities(t, path, agentAbilities[p.name]) })
	})
}

func (p agentProgram) checkAbilities(t *testing.T, path string, want abilities) {
	g := startGateway(t, map[string]string{"uno": startSim(t, simConfig()).Addrs()[0]})
	g.online("uno")
	r := recordMCP(t, g.url("/mcp"))
	m := model.Start(t)
	home := t.TempDir()
	args, env := p.command(t, home, m.URL(), mcpServer{url: r.url}, "Switch the LED on.")
	run := p.start(t, path, home, append(env, outward(m.URL())...), args)
	ctx, cancel := context.WithTimeout(run.ended, 3*time.Minute)
	defer cancel()
	tool := m.Offered(ctx, "uno__gpio_write")
	if want.reads != "" {
		text := m.Call(ctx, model.Tool{Name: want.reads}, `{"server":"ferrule","uri":"skill://ferrule/use-ferrule/SKILL.md"}`)
		if !strings.Contains(text, "Use devices with Ferrule") {
			t.Errorf("%s returns %s", want.reads, text)
		}
	}
	lists := r.count("tools/list")
	g.crowd(1, 1) // another device
	wait.For(t, "the program is notified", func() bool { return r.count("notifications/tools/list_changed") > 0 })
	if want.relists {
		wait.For(t, "the program lists tools again", func() bool { return r.count("tools/list") > lists })
	}
	m.Call(ctx, tool, `{"pin":2,"value":true}`)
	if relists, offers := r.count("tools/list") > lists, m.Mentions(ctx, "sensor-00000__read_0"); relists != want.relists || offers && !relists {
		t.Errorf("it lists tools again: %t, want %t; the new tool is offered: %t", relists, want.relists, offers)
	}
	m.Say(ctx, "It is on.")
	run.wait(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := toJSON(t, r.declared); r.version != want.version || got != want.declared {
		t.Errorf("it speaks MCP %s and declares %s, want %s and %s", r.version, got, want.version, want.declared)
	}
	for method := range r.sent {
		if method == "resources/subscribe" || strings.HasPrefix(method, "tasks/") || strings.HasPrefix(method, "skills/") {
			t.Errorf("it sends %s", method)
		}
	}
	if listened := strings.Join(r.listened, " "); strings.Contains(listened, "resourceSubscriptions") || strings.Contains(listened, "taskIds") {
		t.Errorf("it listens to %s", listened)
	}
	t.Logf("sent %v, listened to %v, was told %v", r.sent, r.listened, r.told)
}
