package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/oidc"
)

// TestProvider: an agent logs in at a real OpenID provider and calls a tool. A rule permits
// it by a group of the provider, and the journal names the person.
func TestProvider(t *testing.T) {
	const audience = "https://gateway.example/mcp"
	issuer := oidc.Start(t, "GROUPS=Staff,Guests", "CLIENT=https://gateway.example/login/callback")
	rules := t.TempDir()
	if err := os.WriteFile(filepath.Join(rules, "lab.cedar"), []byte(`permit (principal in Group::"lab", action, resource in Device::"robot");`), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{Count: 1}).Addrs()[0]}, func(c *config.Config) {
		c.Auth.URL = "https://gateway.example"
		c.Auth.Issuers = []config.Issuer{{
			Name: "company", URL: issuer, GroupsClaim: "groups", Groups: map[string]string{"Staff": "lab", "Guests": "operator"},
			ClientID: "ferrule", ClientSecret: "a secret of the client",
		}}
		c.Policy.Preset, c.Policy.Dir = "read-only", rules
	}, needsToken(config.Token{Name: "other", Token: "0123456789abcdef"}))
	g.online("robot")
	login := func(resource string) oidc.Tokens {
		t.Helper()
		tokens, err := oidc.Login(t.Context(), issuer, "maria", resource, "read", "change")
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	tokens := login(audience)
	for _, version := range mcpVersions {
		agent, err := newPlainAgent(t.Context(), withToken(tokens.Access), g.url("/mcp"), version)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agent.call(t.Context(), "robot__gpio_write", `{"pin":2,"value":true}`); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
	calls := g.outcomes("robot", "gpio_write")
	if len(calls) != len(mcpVersions) {
		t.Fatalf("%d calls are in the journal", len(calls))
	}
	want := ferrule.Principal{Role: ferrule.Agent, Name: "company:maria", Auth: ferrule.AuthIssuer, Scopes: ferrule.LimitTo(ferrule.ScopeChange), Groups: "lab,operator"}
	if calls[0].Principal != want {
		t.Errorf("the journal has %+v", calls[0].Principal)
	}
	for name, token := range map[string]string{"ID token": tokens.ID, "token for another server": login("https://other.example/mcp").Access} {
		agent := &plainAgent{url: g.url("/mcp"), client: withToken(token), mcpVersion: modern}
		var status errStatus
		if _, err := agent.call(t.Context(), "robot__gpio_read", `{"pin":2}`); !errors.As(err, &status) || status < http.StatusBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A person logs in through the provider. The answer of another issuer is refused.
	for name, iss := range map[string]string{"login": issuer, "mix-up": "https://evil.example"} {
		begun := g.browse("/login/with/company", nil)
		back, err := oidc.Browse(t.Context(), begun.Header.Get("Location"), "https://gateway.example/login/callback", "anna")
		if err != nil {
			t.Fatal(err)
		}
		answer := back.Query()
		answer.Set("iss", iss)
		ended := g.browse("/login/callback?"+answer.Encode(), begun.Cookies())
		if ok := ended.StatusCode < http.StatusBadRequest; ok != (iss == issuer) {
			t.Errorf("%s: got %s", name, ended.Status)
		}
	}
	g.stop()
	var logins []string
	err := journal.Read(g.data, func(e ferrule.Entry) error {
		if e.Phase == ferrule.Access && e.Tool == string(ferrule.AccessLogin) {
			logins = append(logins, e.Principal.String()+" "+string(e.Code))
		}
		return nil
	})
	slices.Sort(logins)
	if err != nil || len(logins) != 2 || logins[0] != "person:company:anna " || !strings.HasSuffix(logins[1], " denied") {
		t.Errorf("the journal has the logins %q, %v", logins, err)
	}
}

// browse requests a page as a browser with cookies does that opens a link.
func (g *testGateway) browse(path string, cookies []*http.Cookie) *http.Response {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.url(path), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, c := range cookies {
		req.AddCookie(c)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		g.t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}
