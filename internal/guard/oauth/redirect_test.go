package oauth

import (
	"net/url"
	"strings"
	"testing"
)

// TestRedirectLookalikes checks which addresses a code is sent to.
func TestRedirectLookalikes(t *testing.T) {
	for _, test := range []struct {
		registered string
		uri        string
		ok         bool
	}{
		{"https://claude.ai/api/mcp/auth_callback", "https://claude.ai/api/mcp/auth_callback", true},
		{"https://vscode.dev/redirect", "https://vscode.dev/redirect", true},
		{"https://a.example:8443/cb?x=1", "https://a.example:8443/cb?x=1", true},
		{"http://localhost/callback", "http://localhost:51234/callback", true},
		{"http://localhost:1/callback", "http://localhost:2/callback", true},
		{"http://127.0.0.1/", "http://127.0.0.1:33418/", true},
		{"http://127.0.0.1:33418", "http://127.0.0.1:5/", true},
		{"http://[::1]/cb", "http://[::1]:99/cb", true},
		{"cursor://anysphere.cursor-mcp/oauth/callback", "cursor://anysphere.cursor-mcp/oauth/callback", true},

		{"https://claude.ai/cb", "https://claude.ai/cb/", false},
		{"https://claude.ai/cb", "https://claude.ai/cb?x=1", false},
		{"https://claude.ai/cb", "https://claude.ai/cb?", false},
		{"https://claude.ai/cb", "https://claude.ai/cb#x", false},
		{"https://claude.ai/cb", "https://claude.ai/cb#", false},
		{"https://claude.ai/cb", "https://claude.ai/cb/../evil", false},
		{"https://claude.ai/cb", "https://claude.ai/%2e%2e/cb", false},
		{"https://claude.ai/cb", "https://claude.ai/CB", false},
		{"https://claude.ai/cb", "https://Claude.ai/cb", false},
		{"https://claude.ai/cb", "HTTPS://claude.ai/cb", false},
		{"https://claude.ai/cb", "http://claude.ai/cb", false},
		{"https://claude.ai/cb", "https://claude.ai:444/cb", false},
		{"https://claude.ai/cb", "https://claude.ai:443/cb", false},
		{"https://claude.ai/cb", "https://claude.ai./cb", false},
		{"https://claude.ai/cb", "https://claude.ai.evil.example/cb", false},
		{"https://claude.ai/cb", "https://evilclaude.ai/cb", false},
		{"https://claude.ai/cb", "https://claude.ai@evil.example/cb", false},
		{"https://claude.ai/cb", "https://evil.example/claude.ai/cb", false},
		{"https://claude.ai/cb", "https://evil.example\\@claude.ai/cb", false},
		{"https://claude.ai/cb", "https://evil.example%2f@claude.ai/cb", false},
		{"https://claude.ai/cb", "https:/claude.ai/cb", false},
		{"https://claude.ai/cb", "//claude.ai/cb", false},
		{"https://claude.ai/cb", "/cb", false},
		{"https://claude.ai/cb", " https://claude.ai/cb", false},
		{"https://claude.ai/cb", "https://claude.ai/cb\n", false},
		{"https://claude.ai/cb", "https://claude.ai\t/cb", false},
		{"https://claude.ai/cb", "https://сlaude.ai/cb", false}, // Cyrillic
		{"https://*.example/cb", "https://evil.example/cb", false},
		{"https://*.example/cb", "https://*.example/cb", false},

		{"http://localhost/callback", "http://127.0.0.1/callback", false},
		{"http://localhost/callback", "http://localhost:1/callback/x", false},
		{"http://localhost/callback", "http://localhost:1/callback?x=1", false},
		{"http://localhost/callback", "http://localhost:1/Callback", false},
		{"http://localhost/callback", "http://localhost:/callback", false},
		{"http://localhost/callback", "http://localhost:80x/callback", false},
		{"http://localhost/callback", "http://localhost:1@evil.example/callback", false},
		{"http://localhost/callback", "http://user@localhost/callback", false},
		{"http://localhost/callback", "http://localhost.evil.example/callback", false},
		{"http://localhost/callback", "http://localhost.:1/callback", false},
		{"http://localhost/callback", "http://LOCALHOST/callback", false},
		{"http://localhost/callback", "https://localhost/callback", false},
		{"http://localhost/callback", "http://localhost:1/a/../callback", false},
		{"http://localhost/callback", "http://localhost:1/%63allback", false},
		{"http://127.0.0.1/cb", "http://127.0.0.1.evil.example/cb", false},
		{"http://127.0.0.1/cb", "http://127.0.0.2/cb", false},
		{"http://127.0.0.1/cb", "http://127.1/cb", false},
		{"http://127.0.0.1/cb", "http://2130706433/cb", false},
		{"http://127.0.0.1/cb", "http://0x7f.0.0.1/cb", false},
		{"http://127.0.0.1/cb", "http://0.0.0.0/cb", false},
		{"http://127.0.0.1/cb", "http://[::ffff:127.0.0.1]/cb", false},
		{"http://[::1]/cb", "http://[::1%25lo]/cb", false},
		{"http://192.168.1.5/cb", "http://192.168.1.5/cb", false},
		{"http://evil.example/cb", "http://evil.example/cb", false},

		{"cursor://anysphere.cursor-mcp/oauth/callback", "cursor://anysphere.cursor-mcp/oauth/callback/", false},
		{"cursor://anysphere.cursor-mcp/oauth/callback", "cursor://anysphere.cursor-mcp/oauth/callback?x", false},
		{"cursor://anysphere.cursor-mcp/oauth/callback", "cursor://evil/oauth/callback", false},
		{"https://claude.ai/cb", "cursor://anysphere.cursor-mcp/oauth/callback", false},
		{"vscode://x/cb", "vscode://x/cb", false},
		{"javascript:alert(1)", "javascript:alert(1)", false},
		{"data:text/html,x", "data:text/html,x", false},
		{"file:///etc/passwd", "file:///etc/passwd", false},
		{"https://a.example/cb?code=1", "https://a.example/cb?code=1", false},
		{"https://a.example/cb?x=1&iss=2", "https://a.example/cb?x=1&iss=2", false},
		{"https://a.example/cb?%63ode=1", "https://a.example/cb?%63ode=1", false},
	} {
		if err := matchRedirect([]string{"https://other.example/", test.registered}, test.uri); (err == nil) != test.ok {
			t.Errorf("registered %s, asked for %q: %v", test.registered, test.uri, err)
		}
	}
	r := newTestServer(t, nil)
	id := r.register(callback)
	for _, uri := range []string{"http://localhost:4711/callback2", "http://localhost.evil.example/callback", "https://localhost/callback"} {
		if w := r.send("GET", authorizePath+"?"+asking(id, "redirect_uri", uri).Encode(), ""); w.Code != 400 || w.Header().Get("Location") != "" {
			t.Errorf("%s: %d", uri, w.Code)
		}
	}
	if to := withAnswer("https://a.example/cb?x=1", url.Values{"code": {"c"}}); to != "https://a.example/cb?x=1&code=c" {
		t.Error(to)
	}
}

// FuzzRedirect checks that a redirect leads only where it was registered for.
func FuzzRedirect(f *testing.F) {
	f.Add("http://localhost/callback", "http://localhost:1/callback")
	f.Add("https://a.example/cb", "https://a.example@evil.example/cb")
	f.Add("http://[::1]/", "http://[::1]:80/?x=%zz")
	f.Fuzz(func(t *testing.T, registered, uri string) {
		if matchRedirect([]string{registered}, uri) != nil {
			return
		}
		a, err1 := url.Parse(registered)
		b, err2 := url.Parse(withAnswer(uri, url.Values{"code": {"c"}, "state": {"s"}}))
		if err1 != nil || err2 != nil || a.Scheme != b.Scheme || a.Hostname() != b.Hostname() || b.User != nil || b.Fragment != "" || strings.TrimSuffix(a.Path, "/") != strings.TrimSuffix(b.Path, "/") {
			t.Errorf("%q leads to %q", registered, uri)
		}
		if a.Port() != b.Port() && b.Scheme != "http" {
			t.Errorf("%q leads to another port: %q", registered, uri)
		}
		if q := b.Query(); len(q["code"]) != 1 || q.Get("code") != "c" {
			t.Errorf("%q: the code is %q", uri, q["code"])
		}
	})
}
