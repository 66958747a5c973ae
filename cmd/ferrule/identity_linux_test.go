package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestIdentity makes one call on every path to a board. The journal of the node with the
// board says who made it, how that is known, for which user, and with which program; and
// so do the metrics.
func TestIdentity(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const secret = "a-token-of-sixteen"
	boards := startSim(t, sim.Config{Count: 3})
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	broker := newBroker(t, false)
	local := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, func(c *config.Config) {
		joins(c, "local", servers)
		c.Listen = "127.0.0.1:0"
	}, withEndpoint(config.Endpoint{Name: "home", URL: ferrule.Secret(broker.url())}))
	other := startGateway(t, nil, func(c *config.Config) {
		joins(c, "other", servers)
		c.Listen = "127.0.0.1:0"
	})
	tokens := startGateway(t, map[string]string{"robot": boards.Addrs()[1]}, needsToken(config.Token{Name: "claude", Token: secret}))
	alone := &testGateway{t: t, data: t.TempDir()} // a process that is the gateway for its agent
	for _, g := range []*testGateway{local, other, tokens} {
		g.online("robot")
	}

	user := control.User().Name
	agent := func(name string, auth ferrule.Auth, user string) ferrule.Principal {
		return ferrule.Principal{Role: ferrule.Agent, Name: name, Auth: auth, User: user}
	}
	claude := agent("claude", ferrule.AuthToken, "")
	claude.Scopes = ferrule.LimitTo(ferrule.ScopeEndanger | ferrule.ScopeMetrics)
	pulse := func(session *mcp.ClientSession, tool string) func(token string) error {
		return func(token string) error {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"token": token}})
			if err == nil && result.IsError {
				err = fmt.Errorf("%s", result.Content[0].(*mcp.TextContent).Text)
			}
			return err
		}
	}
	over := func(g *testGateway, path, mcpVersion, client, token string) func(string) error {
		transport := &mcp.StreamableClientTransport{Endpoint: g.url(path)}
		if token != "" {
			transport.HTTPClient = &http.Client{Transport: bearer{token, http.DefaultTransport}}
		}
		tool := "robot__pulse"
		if path != "/mcp" {
			tool = "pulse"
		}
		return pulse(namedAgent(t, mcpVersion, client, transport), tool)
	}
	stdio := func(client, mcpVersion string, serve serveStdio) func(string) error {
		session := namedAgent(t, mcpVersion, client, pipeTransport(t, serve))
		wait.For(t, client+" sees the board", func() bool {
			for tool := range session.Tools(t.Context(), nil) {
				if tool != nil && tool.Name == "robot__pulse" {
					return true
				}
			}
			return false
		})
		return pulse(session, "robot__pulse")
	}
	process := func(cfg config.Config, data string) serveStdio { // ferrule mcp
		return func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
			return gateway.ServeStdio(ctx, gateway.Parts{Config: cfg, Data: data, Version: version(), Log: slog.New(slog.DiscardHandler)}, in, out)
		}
	}
	unlisted := testConfig()
	unlisted.Listen = ""
	own := unlisted
	own.Devices.TCP = []config.TCPDevice{{Name: "robot", Address: boards.Addrs()[2]}}
	voice := broker.connect()
	command := func(g *testGateway) func(string) error {
		return func(token string) error {
			out, err := exec.Command("ferrule", "call", "robot", "pulse", "token="+token, "--data", g.data).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		}
	}
	sdk := func(name, mcpVersion string) ferrule.Client {
		return ferrule.Client{Name: name, Version: "1", Protocol: mcpVersion}
	}
	person := ferrule.Principal{Role: ferrule.Person, Name: user, Auth: ferrule.AuthSocket, User: user}
	for _, test := range []struct {
		path   string
		at     *testGateway // whose journal has the record
		via    string
		call   func(token string) error
		who    ferrule.Principal
		client ferrule.Client
	}{
		{"HTTP with a session", local, "", over(local, "/mcp", legacy, "Claude Code", ""), agent("local/claude-code", ferrule.AuthLoopback, ""), sdk("Claude Code", legacy)},
		{"HTTP without a session", local, "", over(local, "/mcp", modern, "Codex CLI", ""), agent("local/codex-cli", ferrule.AuthLoopback, ""), sdk("Codex CLI", modern)},
		{"HTTP without a name", local, "", func(token string) error {
			a := &rawAgent{t: t, url: local.url("/mcp"), mcpVersion: modern}
			message := strings.Replace(string(a.message("tools/call", map[string]any{"name": "robot__pulse", "arguments": map[string]any{"token": token}})), `"name":"raw"`, `"name":""`, 1)
			req := a.request("tools/call", strings.NewReader(message))
			req.Header.Set("Mcp-Name", "robot__pulse")
			if resp, body := a.do(req); resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"result"`) {
				return fmt.Errorf("%s: %s", resp.Status, body)
			}
			return nil
		}, agent("local/unnamed", ferrule.AuthLoopback, ""), sdk("", modern)},
		{"HTTP at a device, with a session", local, "", over(local, "/mcp/devices/robot", legacy, "inspector", ""), agent("local/inspector", ferrule.AuthLoopback, ""), sdk("inspector", legacy)},
		{"HTTP at a device", local, "", over(local, "/mcp/devices/robot", modern, "inspector", ""), agent("local/inspector", ferrule.AuthLoopback, ""), sdk("inspector", modern)},
		{"token with a session", tokens, "", over(tokens, "/mcp", legacy, "other", secret), claude, sdk("other", legacy)},
		{"token without a session", tokens, "", over(tokens, "/mcp", modern, "local/x", secret), claude, sdk("local/x", modern)},
		{"stdio of the gateway", local, "", stdio("desktop", legacy, local.Agents.Stdio), agent("local/desktop", ferrule.AuthStdio, user), sdk("desktop", legacy)},
		{"stdio as the gateway", alone, "", stdio("desktop", legacy, process(own, alone.data)), agent("local/desktop", ferrule.AuthStdio, user), sdk("desktop", legacy)},
		{"stdio through the socket", local, "", stdio("desktop", legacy, process(unlisted, local.data)), agent("local/desktop", ferrule.AuthStdio, user), sdk("desktop", legacy)},
		{"stdio through the socket, without a session", local, "", stdio("cursor", modern, process(unlisted, local.data)), agent("local/cursor", ferrule.AuthStdio, user), sdk("cursor", modern)},
		{"endpoint", local, "", func(token string) error {
			voice.call("robot__pulse", fmt.Sprintf(`{"token":%q}`, token))
			return nil
		}, agent("endpoint:home", ferrule.AuthEndpoint, ""), sdk("endpoint", legacy)},
		{"command line", local, "", command(local), person, ferrule.Client{Name: "ferrule"}},
		{"HTTP at another node", local, "other", over(other, "/mcp", legacy, "Claude Code", ""), agent("local/claude-code", ferrule.AuthLoopback, ""), sdk("Claude Code", legacy)},
		{"stdio at another node", local, "other", stdio("desktop", modern, process(unlisted, other.data)), agent("local/desktop", ferrule.AuthStdio, user), sdk("desktop", modern)},
		{"command line at another node", local, "other", command(other), person, ferrule.Client{Name: "ferrule"}},
	} {
		token := strings.ReplaceAll(test.path, " ", "-")
		if err := test.call(token); err != nil {
			t.Errorf("%s: %v", test.path, err)
			continue
		}
		args := fmt.Sprintf(`{"token":%q}`, token)
		var all []ferrule.Entry
		wait.For(t, test.path+" is recorded", func() bool {
			all = slices.DeleteFunc(test.at.outcomes("robot", "pulse"), func(e ferrule.Entry) bool { return string(e.Args) != args })
			return len(all) > 0
		})
		// Each token has an ID of its own.
		if who := &all[0].Principal; test.who.Auth == ferrule.AuthToken && who.HasConfigToken() {
			who.TokenID = ""
		}
		if e := all[0]; len(all) != 1 || e.Principal != test.who || e.Client != test.client || e.Via != test.via || e.Code != "" {
			t.Errorf("%s: got %+v, want %+v with %+v", test.path, all, test.who, test.client)
		}
		if test.at == local {
			series := fmt.Sprintf(`ferrule_caller_calls_total{auth=%q,caller=%q} `, test.who.Auth, test.who)
			wait.For(t, test.path+" is counted", func() bool {
				_, text := local.fetch("/metrics", nil)
				return strings.Contains(text, series)
			})
		}
	}

	out, err := exec.Command("ferrule", "audit", "--json", "--local", "--principal", "local/cursor", "--data", local.data).Output()
	var line ferrule.Entry
	if err != nil || json.NewDecoder(bytes.NewReader(out)).Decode(&line) != nil || line.Principal != agent("local/cursor", ferrule.AuthStdio, user) {
		t.Errorf("ferrule audit: %v: %s", err, out)
	}
}

// namedAgent connects an agent whose program has a name.
func namedAgent(t *testing.T, mcpVersion, name string, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil)
	session, err := client.Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: mcpVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}
