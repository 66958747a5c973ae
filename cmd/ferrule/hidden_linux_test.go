package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// looker is an agent that looks at lists.
type looker struct {
	t       *testing.T
	name    string
	session *mcp.ClientSession
	changed chan time.Time
}

// newLooker connects an agent that is told when its list of tools has changed.
func newLooker(t *testing.T, name, path, mcpVersion string, transport mcp.Transport) *looker {
	t.Helper()
	l := &looker{t: t, name: name + " over " + path, changed: make(chan time.Time, 100)}
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: path}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { l.changed <- time.Now() },
	})
	session, err := client.Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: mcpVersion})
	if err != nil {
		t.Fatalf("%s: %v", l.name, err)
	}
	t.Cleanup(func() { session.Close() })
	l.session = session
	return l
}

// text returns the names and texts in the agent's lists, and the results of searches.
func (l *looker) text() string {
	l.t.Helper()
	var all []string
	for tool, err := range l.session.Tools(l.t.Context(), nil) {
		if err != nil {
			l.t.Fatalf("%s: %v", l.name, err)
		}
		all = append(all, "list "+tool.Name)
	}
	for r, err := range l.session.Resources(l.t.Context(), nil) {
		if err != nil {
			l.t.Fatalf("%s: %v", l.name, err)
		}
		all = append(all, "resource "+r.URI)
	}
	for p, err := range l.session.Prompts(l.t.Context(), nil) {
		if err != nil {
			l.t.Fatalf("%s: %v", l.name, err)
		}
		all = append(all, "prompt "+p.Name)
	}
	search := func(tool string, args map[string]any) string {
		result, err := l.session.CallTool(l.t.Context(), &mcp.CallToolParams{Name: "gateway__" + tool, Arguments: args})
		if err != nil {
			l.t.Fatalf("%s: %v", l.name, err)
		}
		return result.Content[0].(*mcp.TextContent).Text
	}
	all = append(all, "found "+search("find_tools", map[string]any{"limit": 100}), "found "+search("find_devices", nil), "listed "+search("list_devices", nil))
	for _, device := range []string{"door1", "lamp"} {
		all = append(all, "described "+device+" "+search("describe_device", map[string]any{"device": device}), "state "+device+" "+search("device_state", map[string]any{"device": device}))
		all = append(all, "described "+search("describe_tool", map[string]any{"name": device + "__unlock"}))
	}
	return strings.Join(all, "\n")
}

// sees checks whether tools can be found anywhere.
func (l *looker) sees(unlock, lamp bool) {
	l.t.Helper()
	text := l.text()
	if got := strings.Contains(text, `"name":"unlock"`) || strings.Contains(text, `"tool":"unlock"`) || strings.Contains(text, "list door1__unlock") || slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "list ") && strings.HasSuffix(line, "unlock")
	}); got != unlock {
		l.t.Errorf("%s sees unlock: %t\n%s", l.name, got, text)
	}
	if got := strings.Contains(text, "lamp__") || strings.Contains(text, "devices/lamp") || strings.Contains(text, `"id":"lamp"`) || strings.Contains(text, `"device":"lamp"`); got != lamp {
		l.t.Errorf("%s sees the lamp: %t\n%s", l.name, got, text)
	}
	if !strings.Contains(text, "look") {
		l.t.Errorf("%s sees too little:\n%s", l.name, text)
	}
}

// TestHiddenFromAgents checks that what an agent may not use is absent from its lists and
// searches and present for another, in all shapes of the list, and that a reload of the
// policy reaches connected agents.
func TestHiddenFromAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	h := newGuardedHouse(t)
	for shape, budget := range map[catalog.Shape]int{catalog.Plain: 40, catalog.Folded: 6, catalog.Search: 1} {
		t.Run(string(shape), func(t *testing.T) {
			dir := t.TempDir()
			cfg := testConfig()
			for device, url := range h.urls {
				cfg.Devices.HTTP = append(cfg.Devices.HTTP, config.HTTPDevice{URL: url, Name: device})
			}
			verdictTokens(&cfg)
			cfg.Agents.Budget, cfg.Policy.Dir, cfg.Polling.Enabled = budget, dir, false
			cfg.Policy.Groups = map[string][]string{"guests": everywhere("guest")}
			write := func(rules string) {
				if err := os.WriteFile(filepath.Join(dir, "house.cedar"), []byte(rules), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(`forbid (principal in Group::"guests", action == Action::"call", resource) when { resource.name == "unlock" };`)
			data := t.TempDir()
			inner, err := gateway.New(gateway.Parts{
				Config: cfg, Data: data, Version: version(), Log: slog.New(slog.DiscardHandler), Load: func() (config.Config, error) { return cfg, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			g := runGateway(t, inner, data)
			g.label()
			if _, is := g.Catalog.List(); is != shape {
				t.Fatalf("the list is %s", is)
			}
			proxied := testConfig()
			proxied.Listen, proxied.Agents.Budget = "", budget
			var guests, others []*looker
			for who, list := range map[string]*[]*looker{"guest": &guests, "boss": &others} {
				for _, mcpVersion := range mcpVersions {
					*list = append(*list, newLooker(t, who, "http "+mcpVersion, mcpVersion, &mcp.StreamableClientTransport{Endpoint: g.url("/mcp"), HTTPClient: withToken(tokenOf(who))}))
					*list = append(*list, newLooker(t, who, "stdio "+mcpVersion, mcpVersion, mcpTransport(t, proxied, data)))
				}
			}
			for _, l := range guests {
				l.sees(false, true)
			}
			for _, l := range others {
				l.sees(true, true)
			}
			for _, l := range guests {
				for len(l.changed) > 0 {
					<-l.changed
				}
			}
			write(`forbid (principal in Group::"guests", action, resource in Device::"lamp");`)
			if _, err := g.Reload(); err != nil {
				t.Fatal(err)
			}
			reloaded := time.Now()
			var slowest time.Duration
			for _, l := range guests {
				if shape == catalog.Search && strings.Contains(l.name, "stdio") { // its list stays the same
					wait.For(t, l.name+" does not see the lamp", func() bool { return !strings.Contains(l.text(), "devices/lamp") })
					continue
				}
				select {
				case at := <-l.changed:
					slowest = max(slowest, at.Sub(reloaded))
				case <-time.After(wait.Ample):
					t.Errorf("%s was not told", l.name)
				}
			}
			figure.AtMost(t, "time until all agents are told of a reload", slowest, 2*time.Second)
			for _, l := range guests {
				l.sees(true, false)
			}
			for _, l := range others {
				l.sees(true, true)
			}
			socket, err := control.SocketPath(data)
			if err != nil {
				t.Fatal(err)
			}
			client := control.NewClient(socket)
			defer client.Close()
			if list, err := client.Builtin(t.Context(), "list_devices", struct{}{}); err != nil || !strings.Contains(string(list.Value), `"id":"lamp"`) {
				t.Errorf("a person does not see the lamp: %v", err)
			}
		})
	}
}
