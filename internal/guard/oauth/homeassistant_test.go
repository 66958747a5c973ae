package oauth

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// home sends requests as the MCP client of Home Assistant does, to a gateway whose address is
// spelled in one of several ways.
type home struct {
	*testServer
	base string
}

func (h home) send(method, path string, form url.Values, head ...string) *httptest.ResponseRecorder {
	h.t.Helper()
	body := ""
	if form != nil {
		body = form.Encode()
	}
	r := httptest.NewRequest(method, h.base+path, strings.NewReader(body))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	h.mux.ServeHTTP(w, r)
	return w
}

func (h home) decode(w *httptest.ResponseRecorder, status int, out any) {
	h.t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil || w.Code != status {
		h.t.Fatalf("%s: %d %s", h.base, w.Code, w.Body)
	}
}

// TestHomeAssistantLogin makes the requests that releases of Home Assistant make: metadata at
// the origin, a client that its user typed in, no PKCE, no resource, and the secret in the
// form. It does so under three spellings of the host, with both addresses that Home
// Assistant sends browsers back to.
func TestHomeAssistantLogin(t *testing.T) {
	redirects := []string{"https://my.home-assistant.io/redirect/oauth", "http://homeassistant.local:8123/auth/external/callback"}
	r := newTestServer(t, func(p *Parts) {
		p.Config.Clients = []Client{{ID: "home-assistant", Secret: secret, Redirects: redirects}}
		p.Origin = func(r *http.Request) string { return mcphttp.Origin("", r) }
	})
	if err := r.parts.Config.Check(); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"http://127.0.0.1:3377", "http://localhost:3377", "http://workbench:3377"} {
		for _, redirect := range redirects {
			h := home{r, base}
			var about struct {
				Authorize string   `json:"authorization_endpoint"`
				Token     string   `json:"token_endpoint"`
				Methods   []string `json:"token_endpoint_auth_methods_supported"`
				Scopes    []string `json:"scopes_supported"`
			}
			h.decode(h.send(http.MethodGet, "/.well-known/oauth-authorization-server", nil, "MCP-Protocol-Version", "2025-03-26"), http.StatusOK, &about)
			authorize, found := strings.CutPrefix(about.Authorize, base)
			token, same := strings.CutPrefix(about.Token, base)
			if !found || !same || !slices.Contains(about.Methods, "client_secret_post") {
				t.Fatalf("%s: %+v", base, about)
			}
			query := url.Values{
				"response_type": {"code"}, "client_id": {"home-assistant"}, "redirect_uri": {redirect}, "state": {strings.Repeat("jwt.", 100)},
				"access_type": {"offline"}, "prompt": {"consent"}, "scope": {strings.Join(about.Scopes, " ")},
			}.Encode()
			if w := h.send(http.MethodGet, authorize+"?"+query, nil); w.Code != http.StatusOK {
				t.Fatalf("%s: consent: %d %s", base, w.Code, w.Body)
			}
			w := h.send(http.MethodPost, authorize+"?"+query, r.consent())
			back, err := url.Parse(w.Header().Get("Location"))
			if err != nil || !strings.HasPrefix(back.String(), redirect+"?") || back.Query().Get("state") == "" {
				t.Fatalf("%s: sent back to %q", base, back)
			}
			var got reply
			h.decode(h.send(http.MethodPost, token, url.Values{
				"grant_type": {"authorization_code"}, "code": {back.Query().Get("code")}, "redirect_uri": {redirect},
				"client_id": {"home-assistant"}, "client_secret": {secret},
			}), http.StatusOK, &got)
			if c, err := r.verify(got.Access); err != nil || c.Who.Name != "oauth:maria/home-assistant" || got.Refresh == "" || got.Expires < 60 {
				t.Errorf("%s: %+v, %v", base, got, err)
			}
			var renewed reply
			h.decode(h.send(http.MethodPost, token, url.Values{
				"grant_type": {"refresh_token"}, "client_id": {"home-assistant"}, "refresh_token": {got.Refresh}, "client_secret": {secret},
			}), http.StatusOK, &renewed)
			if !r.accepted(renewed.Access) {
				t.Errorf("%s: the renewed token is not accepted", base)
			}
		}
	}
}

// TestHomeAssistantRegisters: releases that register themselves refuse an answer with an expiring
// secret, with fewer scopes, or without their address. They then use PKCE, and may name the
// resource as their user typed it, with its profile.
func TestHomeAssistantRegisters(t *testing.T) {
	const redirect, scopes = "https://my.home-assistant.io/redirect/oauth", "read change endanger offline_access"
	r := newTestServer(t, nil)
	body, err := json.Marshal(map[string]any{
		"redirect_uris": []string{redirect}, "token_endpoint_auth_method": "none", "grant_types": []string{"authorization_code", "refresh_token"},
		"response_types": []string{"code"}, "client_name": "Home Assistant", "scope": scopes, "application_type": "web",
	})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ID        string   `json:"client_id"`
		Redirects []string `json:"redirect_uris"`
		Scope     *string  `json:"scope"`
		Method    string   `json:"token_endpoint_auth_method"`
		Expires   int      `json:"client_secret_expires_at"`
	}
	home{r, "http://127.0.0.1:7777"}.decode(r.send("POST", registerPath, string(body), "Content-Type", "application/json", "Accept", "application/json"), http.StatusCreated, &got)
	if got.ID == "" || !slices.Contains(got.Redirects, redirect) || got.Method != "none" || got.Expires != 0 {
		t.Errorf("%+v", got)
	}
	for _, scope := range strings.Fields(scopes) {
		if got.Scope != nil && !slices.Contains(strings.Fields(*got.Scope), scope) {
			t.Errorf("the scope %s is missing in %q", scope, *got.Scope)
		}
	}
	for resource, want := range map[string]int{origin + "/mcp?profile=home-assistant": http.StatusOK, origin + "/mcp?profile=a&profile=b": http.StatusBadRequest, origin + "/mcp?other=x": http.StatusBadRequest} {
		q := asking(got.ID, "redirect_uri", redirect, "resource", resource)
		if w := r.send(http.MethodGet, authorizePath+"?"+q.Encode(), ""); w.Code != want {
			t.Errorf("%s: %d", resource, w.Code)
		}
	}
}

// TestPlainRedirects: only programs that the owner registered are sent back to without TLS, in
// private networks, and to exactly their address.
func TestPlainRedirects(t *testing.T) {
	for uri, want := range map[string]bool{
		"http://homeassistant.local:8123/auth/external/callback": true, "http://192.168.1.5:8123/cb": true, "http://[fd00::5]:8123/cb": true, "http://ha/cb": true,
		"http://ha.home.arpa/cb": true, "http://ha.lan/cb": true, "https://ha.example/cb": true, "http://169.254.1.1/cb": true,
		"http://ha.example/cb": false, "http://8.8.8.8/cb": false, "http://134744072/cb": false, "http://local.evil.example/cb": false, "http://[2001:db8::1]/cb": false,
		"http://in-addr.arpa/cb": false, "ftp://ha.local/cb": false, "http://user@ha.local/cb": false, "http://ha.local/../cb": false,
	} {
		if err := checkOwnRedirect(uri); (err == nil) != want {
			t.Errorf("%s: %v", uri, err)
		}
		if strings.HasPrefix(uri, "http:") && checkRedirect(uri) == nil {
			t.Errorf("any program may be sent back to %s", uri)
		}
	}
	const own = "http://homeassistant.local:8123/cb"
	c := &client{Redirects: []string{own}, confidential: true}
	for _, uri := range []string{"http://homeassistant.local:8124/cb", "http://homeassistant.local:8123/cb2", "http://homeassistant.local:8123/cb?x=y", "http://other.local:8123/cb"} {
		if c.matchRedirect(uri) == nil {
			t.Errorf("%s is taken for %s", uri, own)
		}
	}
	if err := c.matchRedirect(own); err != nil {
		t.Error(err)
	}
}
