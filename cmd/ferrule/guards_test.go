package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestGuards checks that requests that do not come from an agent are refused, and that
// an agent cannot disturb others.
func TestGuards(t *testing.T) {
	t.Run("names", guardNames)
	t.Run("bodies", guardBodies)
	t.Run("nonsense", guardNonsense)
	t.Run("sessions", guardSessions)
	t.Run("idle sessions", guardIdleSessions)
	t.Run("sessions of an agent", guardSessionsOfAgent)
	t.Run("tokens", guardTokens)
	t.Run("panics", guardPanics)
}

// guardNames checks that pages of other sites and foreign host names are refused.
func guardNames(t *testing.T) {
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]})
	g.online("robot")
	own := g.Addr()
	for _, path := range []string{"/mcp", "/mcp/devices/robot"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions} {
			for _, test := range []struct {
				host, origin string
				forbidden    bool
			}{
				{own, "", false},
				{strings.Replace(own, "127.0.0.1", "localhost", 1), "", false},
				{own, "http://" + own, false},
				{"evil.example", "", true},
				{"evil.example:80", "", true},
				{"127.0.0.1.evil.example", "", true},
				{own, "http://evil.example", true},
				{own, "http://127.0.0.1:1", true},
				{own, "null", true},
				{"evil.example", "http://evil.example", true},
			} {
				a := &rawAgent{t: t, url: g.url(path), mcpVersion: modern}
				req := a.request("tools/list", bytes.NewReader(a.message("tools/list", nil)))
				req.Method, req.Host = method, test.host
				if test.origin != "" {
					req.Header.Set("Origin", test.origin)
				}
				resp, body := a.do(req)
				if (resp.StatusCode == http.StatusForbidden) != test.forbidden || method == http.MethodPost && !test.forbidden && resp.StatusCode != http.StatusOK {
					t.Errorf("%s %s of %q from %q: %s %s", method, path, test.host, test.origin, resp.Status, body)
				}
			}
		}
	}
}

// guardBodies checks the size limits of requests.
func guardBodies(t *testing.T) {
	g := startGateway(t, nil)
	for _, mcpVersion := range mcpVersions {
		a := newRawAgent(t, g.url("/mcp"), mcpVersion, "")
		for size, want := range map[int]int{1<<20 - 1: http.StatusBadRequest, 1<<20 + 1: http.StatusRequestEntityTooLarge, 8 << 20: http.StatusRequestEntityTooLarge} {
			resp, body := a.do(a.request("tools/list", bytes.NewReader(bytes.Repeat([]byte("x"), size))))
			if resp.StatusCode != want {
				t.Errorf("%s: %d bytes: %s %.200s", mcpVersion, size, resp.Status, body)
			}
		}
	}
}

// guardNonsense checks that malformed requests get an error and cost nothing.
func guardNonsense(t *testing.T) {
	g := startGateway(t, nil)
	methods := []string{
		"initialize", "server/discover", "ping", "tools/list", "tools/call", "resources/list", "resources/read", "resources/templates/list",
		"resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel",
		"notifications/cancelled", "notifications/progress", "notifications/initialized", "notifications/roots/list_changed", "nonsense", "",
	}
	params := []string{
		``, `,"params":null`, `,"params":{}`, `,"params":[]`, `,"params":5`, `,"params":{"name":5,"uri":5,"ref":5,"argument":5,"cursor":5}`,
		`,"params":{"name":null,"uri":null,"ref":null,"argument":null,"arguments":null,"_meta":null,"cursor":null}`,
		`,"params":{"name":"gateway__status","arguments":[1]}`, `,"params":{"name":"gateway__call_tool","arguments":{"name":"gateway__call_tool"}}`,
		`,"params":{"name":"__","uri":"ferrule://","cursor":"x"}`, `,"params":{"ref":{"type":"ref/prompt"},"argument":{}}`,
		`,"params":{"_meta":{"progressToken":{}},"name":"gateway__status","arguments":"x"}`,
	}
	for _, mcpVersion := range mcpVersions {
		a := newRawAgent(t, g.url("/mcp"), mcpVersion, "")
		for _, method := range methods {
			for _, p := range params {
				for _, id := range []string{`"id":1,`, `"id":null,`, ``} {
					req := a.request(method, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0",%s"method":%q%s}`, id, method, p)))
					resp, body := a.do(req)
					if resp.StatusCode >= 500 {
						t.Errorf("%s: %s %s: %s %s", mcpVersion, method, p, resp.Status, body)
					}
				}
			}
		}
		for _, body := range []string{``, `[]`, `null`, `5`, `{`, `[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`, strings.Repeat("[", 100_000), `{"jsonrpc":"1.0","id":{},"method":[]}`, "\xff\xfe\x00"} {
			if resp, text := a.do(a.request("tools/list", strings.NewReader(body))); resp.StatusCode >= 500 {
				t.Errorf("%s: %.100s: %s %s", mcpVersion, body, resp.Status, text)
			}
		}
		a = newRawAgent(t, g.url("/mcp"), mcpVersion, "")
		a.result("tools/list", nil)
	}
}

// guardSessions checks the limit of sessions.
func guardSessions(t *testing.T) {
	g := startGateway(t, nil, func(c *config.Config) { c.Agents.Sessions = 3 })
	var agents []*rawAgent
	for range 3 {
		agents = append(agents, newRawAgent(t, g.url("/mcp"), legacy, ""))
	}
	busy := func(resp *http.Response, body []byte) {
		t.Helper()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "limit is 3") {
			t.Errorf("one more: %s %s", resp.Status, body)
		}
	}
	one := &rawAgent{t: t, url: g.url("/mcp"), mcpVersion: legacy}
	busy(one.ask("initialize", hello))
	one = &rawAgent{t: t, url: g.url("/mcp"), mcpVersion: modern}
	busy(one.ask("subscriptions/listen", map[string]any{"notifications": map[string]any{"toolsListChanged": true}}))
	for _, a := range append(agents, one) { // existing sessions are served, and agents without sessions
		a.result("tools/list", nil)
	}
}

// guardIdleSessions checks that sessions end that are idle, unless they have a stream.
func guardIdleSessions(t *testing.T) {
	const idle = 1500 * time.Millisecond
	g := startGateway(t, nil, func(c *config.Config) { c.Agents.Sessions, c.Agents.Idle = 3, config.Interval(idle) })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var agents []*rawAgent
	wait.For(t, "the first has a stream", func() bool { // on a busy machine it may end before
		agents = []*rawAgent{newRawAgent(t, g.url("/mcp"), legacy, "")}
		req := agents[0].request("", nil).WithContext(ctx)
		req.Method = http.MethodGet
		req.Header.Set("Accept", "text/event-stream")
		stream, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stream.Body.Close() })
		return stream.StatusCode == http.StatusOK
	})
	for range 2 {
		agents = append(agents, newRawAgent(t, g.url("/mcp"), legacy, ""))
	}
	wait.For(t, "there are free sessions", func() bool {
		resp, _ := (&rawAgent{t: t, url: g.url("/mcp"), mcpVersion: legacy}).ask("initialize", hello)
		return resp.StatusCode == http.StatusOK
	})
	if resp, body := agents[1].ask("tools/list", nil); resp.StatusCode != http.StatusNotFound { // it was used earlier than the last
		t.Errorf("a session that has ended: %s %s", resp.Status, body)
	}
	agents[0].result("tools/list", nil)
}

// guardSessionsOfAgent checks that an agent cannot take the sessions of all others.
func guardSessionsOfAgent(t *testing.T) {
	const ada, ben = "a-token-of-sixteen", "another-token-of-16"
	g := startGateway(t, nil, func(c *config.Config) {
		c.Agents.SessionsPerAgent = 2
	}, needsToken(config.Token{Name: "ada", Token: ada}, config.Token{Name: "ben", Token: ben}))
	for range 2 {
		newRawAgent(t, g.url("/mcp"), legacy, ada)
	}
	refused := func(mcpVersion, method string, params map[string]any) {
		t.Helper()
		one := &rawAgent{t: t, url: g.url("/mcp"), mcpVersion: mcpVersion, token: ada}
		if resp, body := one.ask(method, params); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "2 for each agent") {
			t.Errorf("one more %s: %s %s", method, resp.Status, body)
		}
	}
	refused(legacy, "initialize", hello)
	another := maps.Clone(hello)
	another["clientInfo"] = map[string]any{"name": "another", "version": "1"}
	refused(legacy, "initialize", another)
	refused(modern, "subscriptions/listen", map[string]any{"notifications": map[string]any{"toolsListChanged": true}})
	newRawAgent(t, g.url("/mcp"), legacy, ben).result("tools/list", nil)
	(&rawAgent{t: t, url: g.url("/mcp"), mcpVersion: modern, token: ada}).result("tools/list", nil)
}

// guardTokens checks that a token is needed, and that it identifies the agent.
func guardTokens(t *testing.T) {
	const ada, ben = "a-token-of-sixteen", "another-token-of-16"
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, needsToken(config.Token{Name: "ada", Token: ada}, config.Token{Name: "ben", Token: ben}))
	g.online("robot")
	for _, mcpVersion := range mcpVersions {
		for _, token := range []string{"", "nonsense", ada[:len(ada)-1]} {
			for _, path := range []string{"/mcp", "/mcp/devices/robot", "/mcp/devices/nobody"} {
				a := &rawAgent{t: t, url: g.url(path), mcpVersion: mcpVersion, token: token}
				resp, body := a.ask("tools/list", nil)
				if resp.StatusCode != http.StatusUnauthorized || strings.Contains(string(body), "robot") {
					t.Errorf("%s with %q: %s %s", path, token, resp.Status, body)
				}
			}
		}
		for name, token := range map[string]string{"ada": ada, "ben": ben} {
			a := newRawAgent(t, g.url("/mcp"), mcpVersion, token)
			a.result("tools/call", map[string]any{"name": "robot__pulse", "arguments": map[string]any{"token": mcpVersion + name}})
			ok := false
			for _, e := range g.outcomes("robot", "pulse") {
				if len(e.Kind) != 64 || e.Verdict != ferrule.Permit || e.Client.Name != "raw" || e.Client.Version != "1" || e.Client.Protocol == "" {
					t.Errorf("the record lacks the kind, the verdict or the client: %+v", e)
				}
				ok = ok || e.Principal.String() == "agent:"+name && string(e.Args) == fmt.Sprintf(`{"token":%q}`, mcpVersion+name)
			}
			if !ok {
				t.Errorf("%s: the journal does not name %s: %+v", mcpVersion, name, g.outcomes("robot", "pulse"))
			}
		}
	}
	a := newRawAgent(t, g.url("/mcp"), legacy, ada)
	a.token = ben
	if resp, body := a.ask("tools/list", nil); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the session of another: %s %s", resp.Status, body)
	}
	a.token = ada
	a.result("tools/list", nil)
}

// guardPanics checks that a panic is the error of one call.
func guardPanics(t *testing.T) {
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]})
	g.online("robot")
	m := &ferrule.Manifest{Model: "bomb", Tools: []ferrule.Tool{
		{Name: "tick", Effect: ferrule.Changes},
		{Name: "read", Effect: ferrule.Reads, Check: func(map[string]any) []string { panic("at the check") }},
	}}
	g.Fleet.Put(&ferrule.Device{
		ID: "bomb", Kind: "0123456789", Model: "bomb", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Since: time.Now(),
	}, m, func(context.Context, *ferrule.Call) (*ferrule.Result, error) { panic("at the device") })
	for _, mcpVersion := range mcpVersions {
		for _, path := range []string{"/mcp", "/mcp/devices/bomb"} {
			a := dialAgent(t, g, mcpVersion, path)
			prefix := map[string]string{"/mcp": "bomb__"}[path]
			if text := a.wants(prefix+"tick", `{}`, ferrule.Internal); !strings.Contains(text, "The action may have run.") {
				t.Errorf("%s: %s", a.name, text)
			}
			if text := a.wants(prefix+"read", `{}`, ferrule.Internal); !strings.Contains(text, "Nothing was sent") {
				t.Errorf("%s: %s", a.name, text)
			}
			if !a.lists(prefix + "tick") {
				t.Errorf("%s sees %q", a.name, a.list())
			}
		}
		var got struct{ Runs int }
		dialAgent(t, g, mcpVersion, "/mcp").mustUse("robot__pulse", fmt.Sprintf(`{"token":%q}`, mcpVersion), &got)
		if got.Runs != 1 {
			t.Errorf("got %+v", got)
		}
	}
	var state struct{ Status string }
	resp, err := http.Get(g.url("/healthz"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil || state.Status != "ok" {
		t.Errorf("%+v, %v", state, err)
	}
}
