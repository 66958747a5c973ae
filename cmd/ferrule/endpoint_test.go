package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// testBroker is a xiaozhi MCP endpoint that gateways dial.
type testBroker struct {
	t      testing.TB
	server *httptest.Server
	conns  chan net.Conn

	mu   sync.Mutex
	away bool
}

// newBroker starts a broker, with TLS if it is secure.
func newBroker(t testing.TB, secure bool) *testBroker {
	t.Helper()
	b := &testBroker{t: t, conns: make(chan net.Conn, 100)}
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		away := b.away
		b.mu.Unlock()
		if away || r.URL.Query().Get("token") != "secret" {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		if conn, _, _, err := ws.UpgradeHTTP(r, w); err == nil {
			b.conns <- conn
		}
	}))
	b.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if secure {
		b.server.StartTLS()
	} else {
		b.server.Start()
	}
	t.Cleanup(b.server.Close)
	return b
}

// url returns the address that gateways dial.
func (b *testBroker) url() string {
	return "ws" + strings.TrimPrefix(b.server.URL, "http") + "/mcp/?token=secret"
}

// goAway refuses gateways that dial, or accepts them again.
func (b *testBroker) goAway(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// voiceAgent is an agent at a broker.
type voiceAgent struct {
	t    testing.TB
	conn net.Conn
	last int
}

// connect waits for the gateway to dial in, and initializes the session as an agent.
func (b *testBroker) connect() *voiceAgent {
	b.t.Helper()
	a := &voiceAgent{t: b.t}
	select {
	case a.conn = <-b.conns:
		b.t.Cleanup(func() { a.conn.Close() })
	case <-time.After(wait.Ample):
		b.t.Fatal("no gateway has dialled")
	}
	a.ask("initialize", `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"xz-mcp-broker","version":"0.0.1"}}`, &struct{}{})
	a.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

func (a *voiceAgent) say(text string) {
	a.t.Helper()
	if err := ws.WriteFrame(a.conn, ws.NewTextFrame([]byte(text))); err != nil {
		a.t.Fatal(err)
	}
}

// begin sends a request and returns its id.
func (a *voiceAgent) begin(method, params string) string {
	a.t.Helper()
	a.last++
	id := fmt.Sprintf(`"9c1e_n_%d"`, a.last)
	a.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return id
}

// hear waits for the answer to a request and skips notifications.
func (a *voiceAgent) hear(id string) (result, failure json.RawMessage) {
	a.t.Helper()
	for {
		a.conn.SetReadDeadline(time.Now().Add(wait.Ample))
		frame, err := ws.ReadFrame(a.conn)
		if err != nil {
			a.t.Fatal(err)
		}
		payload := ws.UnmaskFrame(frame).Payload
		var m struct{ ID, Result, Error json.RawMessage }
		if err := json.Unmarshal(payload, &m); err != nil || len(payload) > 8192 {
			a.t.Fatalf("%d bytes, %v: %s", len(payload), err, payload)
		}
		if string(m.ID) == id {
			return m.Result, m.Error
		}
		if m.ID != nil {
			a.t.Fatalf("the answer to another request: %s", payload)
		}
	}
}

// ask sends a request and decodes the result.
func (a *voiceAgent) ask(method, params string, result any) {
	a.t.Helper()
	data, failure := a.hear(a.begin(method, params))
	if err := json.Unmarshal(data, result); failure != nil || err != nil {
		a.t.Fatalf("%s %s: %s, %v", method, params, failure, err)
	}
}

// list returns the names of all tools, over all pages.
func (a *voiceAgent) list() (names []string) {
	a.t.Helper()
	for params := `{}`; ; {
		var page struct {
			Tools      []struct{ Name string }
			NextCursor string
		}
		a.ask("tools/list", params, &page)
		for _, tool := range page.Tools {
			names = append(names, tool.Name)
		}
		if page.NextCursor == "" {
			return names
		}
		params = fmt.Sprintf(`{"cursor":%q}`, page.NextCursor)
	}
}

// call calls a tool and returns its text.
func (a *voiceAgent) call(tool, args string) string {
	a.t.Helper()
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	a.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"serialNumber":null}`, tool, args), &result)
	if result.IsError || len(result.Content) != 1 {
		a.t.Fatalf("%s %s: %+v", tool, args, result)
	}
	return result.Content[0].Text
}

// withEndpoint adds an endpoint to a config.
func withEndpoint(e config.Endpoint) func(*config.Config) {
	return func(c *config.Config) { c.Endpoints = append(c.Endpoints, e) }
}

// TestEndpoints checks that agents at two endpoints call the tools of a board and that
// the journal tells them apart. When one endpoint disconnects during a call, the call is
// never repeated, and the endpoint is served again after it reconnects.
func TestEndpoints(t *testing.T) {
	boards := startSim(t, sim.Config{})
	home, work := newBroker(t, false), newBroker(t, false)
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]},
		withEndpoint(config.Endpoint{Name: "home", URL: ferrule.Secret(home.url())}), withEndpoint(config.Endpoint{Name: "work", URL: ferrule.Secret(work.url())}))
	g.online("robot")
	one, other := home.connect(), work.connect()
	for _, a := range []*voiceAgent{one, other} {
		wait.For(t, "the board is in the list", func() bool {
			names := a.list()
			return slices.Contains(names, "robot__gpio_write") && slices.Contains(names, "gateway__status") && !slices.Contains(names, "gateway__release_device")
		})
	}
	_, refused := one.hear(one.begin("tools/call", `{"name":"gateway__release_device","arguments":{"device":"robot"}}`))
	if !strings.Contains(string(refused), "Nothing was sent") || g.device("robot").State != ferrule.StateOnline {
		t.Errorf("a tool that is for people: %s", refused)
	}
	one.call("robot__gpio_write", `{"pin":2,"value":true}`)
	if got := other.call("robot__gpio_read", `{"pin":2}`); !strings.Contains(got, `"value":true`) {
		t.Errorf("got %s", got)
	}
	other.call("robot__pulse", `{"token":"work"}`)

	one.begin("tools/call", `{"name":"robot__sweep","arguments":{"milliseconds":4000}}`)
	wait.For(t, "the call is in flight", func() bool { return intended(t, g, "robot", "sweep") == 1 })
	home.goAway(true)
	one.conn.Close()
	if all := recordsOf(t, g, "sweep"); len(all) != 1 || all[0].Code != ferrule.Cancelled { // whether it was sent or not
		t.Errorf("the call that was cut off: %+v", all)
	}
	wait.For(t, "the status shows that the endpoint is disconnected", func() bool {
		away := g.Status().Endpoints
		return len(away) == 1 && strings.HasPrefix(away[0], "home is disconnected from ws://127.0.0.1:") && !strings.Contains(away[0], "secret")
	})
	other.call("robot__pulse", `{"token":"work"}`)
	home.goAway(false)
	one = home.connect()
	one.call("robot__pulse", `{"token":"home"}`)
	if runs := boards.Boards[0].Runs(); runs["home"] != 1 || runs["work"] != 2 || intended(t, g, "robot", "sweep") != 1 {
		t.Errorf("pulses: %v, sweeps: %d", runs, intended(t, g, "robot", "sweep"))
	}
	wait.For(t, "both are connected", func() bool { return len(g.Status().Endpoints) == 0 })
	for tool, want := range map[string]string{"gpio_write": "agent:endpoint:home", "gpio_read": "agent:endpoint:work"} {
		if all := recordsOf(t, g, tool); len(all) != 1 || all[0].Principal.String() != want {
			t.Errorf("%s: %+v", tool, all)
		}
	}
}

// recordsOf waits for the outcomes of a tool of the robot in the journal. Outcomes of
// reads are written within a second.
func recordsOf(t testing.TB, g *testGateway, tool string) (all []ferrule.Entry) {
	t.Helper()
	wait.For(t, "there is a record of "+tool, func() bool {
		all = g.outcomes("robot", tool)
		return len(all) > 0
	})
	return all
}

// TestEndpointSecure checks that an endpoint with its own certificate is used if its
// issuer is configured, and refused with a clear message otherwise.
func TestEndpointSecure(t *testing.T) {
	boards, broker := startSim(t, sim.Config{}), newBroker(t, true)
	dir := t.TempDir()
	ca, address := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "home.url")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: broker.server.Certificate().Raw})
	for file, data := range map[string][]byte{ca: certificate, address: []byte(broker.url() + "\n")} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]},
		withEndpoint(config.Endpoint{Name: "home", File: address, CA: ca}), withEndpoint(config.Endpoint{Name: "stranger", File: address}))
	g.online("robot")
	a := broker.connect()
	a.call("robot__gpio_write", `{"pin":2,"value":true}`)
	if boards.Boards[0].Level(sim.PinLED) == 0 {
		t.Error("the LED is off")
	}
	wait.For(t, "the other is announced", func() bool {
		return slices.ContainsFunc(g.Status().Endpoints, func(away string) bool {
			return strings.HasPrefix(away, "stranger ") && strings.Contains(away, "certificate signed by unknown authority")
		})
	})
}

// TestEndpointList checks that a long tool list arrives completely, in pages that the
// endpoint accepts.
func TestEndpointList(t *testing.T) {
	broker := newBroker(t, false)
	g := startGateway(t, nil, withEndpoint(config.Endpoint{Name: "home", URL: ferrule.Secret(broker.url())}), func(c *config.Config) { c.Agents.Budget = 500 })
	g.crowd(90, 90)
	a := broker.connect()
	var got []string
	wait.For(t, "all tools are listed", func() bool {
		got = a.list()
		return slices.Contains(got, "sensor-00089__read_4")
	})
	if tools := slices.DeleteFunc(got, func(name string) bool { return !strings.HasPrefix(name, "sensor-") }); len(tools) != 450 || len(slices.Compact(tools)) != 450 {
		t.Errorf("%d tools are listed", len(tools))
	}
}
