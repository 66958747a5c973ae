package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/oidc"
)

// TestProvider: an agent logs in at a real OpenID provider and calls a tool. A rule permits
// it by a group of the provider, and the journal names the person.
func TestProvider(t *testing.T) {
	const audience = "https://gateway.example/mcp"
	issuer := oidc.Start(t, "GROUPS=Staff,Guests")
	rules := t.TempDir()
	if err := os.WriteFile(filepath.Join(rules, "lab.cedar"), []byte(`permit (principal in Group::"lab", action, resource in Device::"robot");`), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{Count: 1}).Addrs()[0]}, func(c *config.Config) {
		c.Auth.Tokens = []config.Token{{Name: "other", Token: "0123456789abcdef"}}
		c.Auth.Issuers = []config.Issuer{{Name: "company", URL: issuer, Audience: audience, GroupsClaim: "groups", Groups: map[string]string{"Staff": "lab"}}}
		c.Policy.Preset, c.Policy.Dir = "read-only", rules
	})
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
	want := ferrule.Principal{Role: ferrule.Agent, Name: "company:maria", Auth: ferrule.AuthIssuer, Scopes: ferrule.LimitTo(ferrule.ScopeChange), Groups: "lab"}
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
}
