package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
)

// grant lets the program in on the page on which a person permits that.
func (c *loginClient) grant(p *person, form url.Values) loginTokens {
	c.t.Helper()
	path := strings.TrimPrefix(c.address(strings.Join(form["scope"], " ")), p.at)
	_, page := p.open(path, nil)
	form.Set("csrf", csrfIn(page))
	form.Set("answer", "allow")
	if code, page := p.open(path, form); code != http.StatusOK || len(c.answers) == 0 {
		c.t.Fatalf("the page answers %d: %s", code, page)
	}
	return c.exchange((<-c.answers).Get("code"))
}

// TestTokenListHasLogins: a login that a person gave to an agent is listed with the tokens,
// and ends like one.
func TestTokenListHasLogins(t *testing.T) {
	g, _ := loginGateway(t)
	c := commandLine{t}
	g.command("people", "add", "anna", "--role", "operator")
	g.command("token", "add", "claude")
	c.want(exitNotRun, `there is no login "grant-x"`, "token", "revoke", "grant-x", "--data", g.data)
	c.want(exitNotRun, "cannot begin with grant-", "token", "add", "grant-x", "--data", g.data)
	tokens := newLoginClient(t, g).grant(g.login("--as", "anna"), url.Values{"scope": {"read"}, "devices": {"some"}, "device": {"robot"}})
	reads := func() error {
		agent, err := newPlainAgent(t.Context(), withToken(tokens.Access), g.url("/mcp"), modern)
		if err == nil {
			_, err = agent.call(t.Context(), "robot__gpio_read", `{"pin":2}`)
		}
		return err
	}
	if err := reads(); err != nil {
		t.Fatal(err)
	}
	var list builtin.ListTokensOutput
	if err := json.Unmarshal([]byte(g.command("token", "list", "--json")), &list); err != nil || len(list.Tokens) != 2 || list.Tokens[0].Login != nil {
		t.Fatalf("got %+v, %v", list, err)
	}
	of := list.Tokens[1]
	if of.Login == nil || of.Login.Person != "anna" || of.Login.Client == "" || strings.Join(of.Scopes, " ") != "read" || strings.Join(of.Devices, " ") != "robot" || of.From != "127.0.0.1" || of.Expires.IsZero() {
		t.Fatalf("got %+v", of)
	}
	text := g.command("token", "list")
	for _, words := range []string{"LOGIN", "claude", of.Name, strings.TrimPrefix(of.Login.Agent, "agent:oauth:"), "127.0.0.1"} {
		if !strings.Contains(text, words) {
			t.Errorf("the list does not have %q:\n%s", words, text)
		}
	}
	if text := g.command("token", "revoke", of.Name); !strings.Contains(text, of.Name+" is revoked: its calls are refused") {
		t.Errorf("got %s", text)
	}
	if err := reads(); err != errStatus(http.StatusUnauthorized) {
		t.Errorf("after revoking: %v", err)
	}
	if text := g.command("token", "list"); strings.Contains(text, of.Name) || !strings.Contains(text, "claude") {
		t.Errorf("after revoking:\n%s", text)
	}
}
