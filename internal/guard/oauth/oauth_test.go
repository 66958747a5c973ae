package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

const (
	origin   = "http://127.0.0.1:7777"
	callback = "http://localhost:4711/callback"
	verifier = "abcdefghijklmnopqrstuvwxyz-0123456789-ABCDEFGHIJKLMNOP"
	secret   = "0123456789abcdef"
)

// people is a browser of somebody who is logged in, unless it has no name.
type people struct{ who ferrule.Principal }

func (p *people) Session(w http.ResponseWriter, r *http.Request) (ferrule.Principal, string, bool) {
	if p.who.Name == "" {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, "log in, then go to %s", r.URL)
		return p.who, "", false
	}
	return p.who, "csrf-of-" + p.who.Name, true
}

func (p *people) CSRF(r *http.Request) bool { return r.PostFormValue("csrf") == "csrf-of-"+p.who.Name }

func person(name, role string, scopes ...string) ferrule.Principal {
	limit, _ := ferrule.ParseScopes(scopes)
	return ferrule.Principal{Role: ferrule.Person, Name: name, Auth: ferrule.AuthLogin, Scopes: limit, Groups: role}
}

var (
	owner    = person("maria", "owner", "admin")
	operator = person("otto", "operator", "endanger")
	viewer   = person("vera", "viewer", "read")
)

// event is what was recorded.
type event struct {
	ferrule.AccessEvent
	who     string
	message string
	refused ferrule.Code
}

// testServer is a server with a browser and an agent.
type testServer struct {
	*Server
	t      testing.TB
	mux    *http.ServeMux
	people *people

	mu     sync.Mutex
	events []event
}

func newTestServer(t testing.TB, change func(*Parts)) *testServer {
	t.Helper()
	r := &testServer{t: t, people: &people{owner}}
	p := Parts{
		Config: Config{Register: true, Documents: true, Clients: []Client{{ID: "home-assistant", Secret: secret, Redirects: []string{"https://my.home-assistant.io/redirect/oauth"}}}},
		File:   filepath.Join(t.TempDir(), "oauth"), Node: "a", Logins: r.people,
		Origin:  func(*http.Request) string { return origin },
		Devices: func(ferrule.Principal) []Device { return []Device{{"lamp", "a lamp"}, {"robot", ""}} },
		Record: func(who ferrule.Principal, e ferrule.AccessEvent, from, message string, refused ferrule.Code) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, event{e, who.String(), message, refused})
		},
		Log: slog.New(slog.DiscardHandler),
	}
	record := p.Record
	if change != nil {
		change(&p)
	}
	p.Logins, p.Record = r.people, record
	var err error
	if r.Server, err = Open(p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	r.mux = http.NewServeMux()
	r.Handle(r.mux, func(next http.Handler) http.Handler { return next })
	return r
}

// restart opens the server again from its file.
func (r *testServer) restart() *testServer {
	r.t.Helper()
	r.Close()
	next := newTestServer(r.t, func(p *Parts) { *p = r.parts })
	next.people.who = r.people.who
	return next
}

// recorded reports whether an event was recorded.
func (r *testServer) recorded(e ferrule.AccessEvent, refused bool, part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(have event) bool {
		return have.AccessEvent == e && (have.refused != "") == refused && strings.Contains(have.message, part)
	})
}

func (r *testServer) send(method, target string, body string, head ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Host = "127.0.0.1:7777"
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, req)
	return w
}

// register registers a client and returns its ID.
func (r *testServer) register(redirects ...string) string {
	r.t.Helper()
	body, _ := json.Marshal(map[string]any{"client_name": "Test Agent", "redirect_uris": redirects})
	w := r.send("POST", registerPath, string(body), "Content-Type", "application/json")
	var out struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != http.StatusCreated || out.ID == "" {
		r.t.Fatalf("%d %s", w.Code, w.Body)
	}
	return out.ID
}

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// asking returns the query of an authorization request, with changes; a value that is empty
// removes the parameter.
func asking(id string, changes ...string) url.Values {
	q := url.Values{
		"client_id": {id}, "redirect_uri": {callback}, "response_type": {"code"}, "state": {"xyz"}, "code_challenge": {challengeOf(verifier)},
		"code_challenge_method": {"S256"}, "resource": {origin + "/mcp"}, "scope": {"read change offline_access"},
	}
	return changed(q, changes)
}

func changed(v url.Values, changes []string) url.Values {
	for i := 0; i < len(changes); i += 2 {
		v.Set(changes[i], changes[i+1])
		if changes[i+1] == "" {
			v.Del(changes[i])
		}
	}
	return v
}

// consent returns the form of the consent page, as it is filled in.
func (r *testServer) consent(changes ...string) url.Values {
	return changed(url.Values{"csrf": {"csrf-of-" + r.people.who.Name}, "answer": {"allow"}, "devices": {"all"}, "scope": {"read", "change"}}, changes)
}

// allow answers the consent page, and returns where the browser is sent.
func (r *testServer) answer(q url.Values, form url.Values) url.Values {
	r.t.Helper()
	w := r.send("POST", authorizePath+"?"+q.Encode(), form.Encode())
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || w.Code != http.StatusSeeOther || !strings.HasPrefix(to.String(), q.Get("redirect_uri")) {
		r.t.Fatalf("%d to %q\n%s", w.Code, to, w.Body)
	}
	return to.Query()
}

// code gets a code.
func (r *testServer) code(q url.Values) string {
	r.t.Helper()
	code := r.answer(q, r.consent()).Get("code")
	if !strings.HasPrefix(code, "ferc_") {
		r.t.Fatalf("no code: %q", code)
	}
	return code
}

// reply is an answer of the token endpoint.
type reply struct {
	Status  int
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Expires int    `json:"expires_in"`
	Scope   string `json:"scope"`
	Error   string `json:"error"`
	Text    string `json:"error_description"`
}

func (r *testServer) token(form url.Values, head ...string) (out reply) {
	r.t.Helper()
	w := r.send("POST", tokenPath, form.Encode(), head...)
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		r.t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		r.t.Error("the answer can be cached")
	}
	out.Status = w.Code
	return out
}

func exchanging(id, code string, changes ...string) url.Values {
	return changed(url.Values{"grant_type": {"authorization_code"}, "client_id": {id}, "code": {code}, "redirect_uri": {callback}, "code_verifier": {verifier}, "resource": {origin + "/mcp"}}, changes)
}

func refreshing(id, token string, changes ...string) url.Values {
	return changed(url.Values{"grant_type": {"refresh_token"}, "client_id": {id}, "refresh_token": {token}}, changes)
}

// login goes through all of it.
func (r *testServer) login(id string) reply {
	r.t.Helper()
	out := r.token(exchanging(id, r.code(asking(id))))
	if out.Status != http.StatusOK {
		r.t.Fatalf("%+v", out)
	}
	return out
}

func (r *testServer) verify(token string) (identity.Credential, error) {
	return r.Verify(context.Background(), token, identity.Request{Resource: origin + "/mcp", From: "192.0.2.1", Time: time.Now()})
}

func (r *testServer) accepted(token string) bool {
	_, err := r.verify(token)
	return err == nil
}

// TestFlow goes through a login as agents do it.
func TestFlow(t *testing.T) {
	r := newTestServer(t, nil)
	w := r.send("GET", metadataPath, "")
	var m map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Header().Get("Access-Control-Allow-Origin") != "*" {
		t.Fatalf("%s: %v", w.Body, err)
	}
	want := map[string]any{
		"issuer": origin, "authorization_endpoint": origin + "/oauth/authorize", "token_endpoint": origin + "/oauth/token",
		"registration_endpoint": origin + "/oauth/register", "revocation_endpoint": origin + "/oauth/revoke",
		"response_types_supported": []any{"code"}, "grant_types_supported": []any{"authorization_code", "refresh_token"},
		"code_challenge_methods_supported": []any{"S256"}, "token_endpoint_auth_methods_supported": []any{"none", "client_secret_basic", "client_secret_post"},
		"scopes_supported": []any{"read", "change", "endanger", "offline_access"}, "client_id_metadata_document_supported": true, "authorization_response_iss_parameter_supported": true,
	}
	for key, value := range want {
		if fmt.Sprint(m[key]) != fmt.Sprint(value) {
			t.Errorf("%s is %v, want %v", key, m[key], value)
		}
	}
	if again := r.send("GET", metadataPath+"/mcp/devices/lamp", ""); again.Body.String() != w.Body.String() {
		t.Errorf("the path variant has %d %s", again.Code, again.Body)
	}

	id := r.register(callback, "cursor://anysphere.cursor-mcp/oauth/callback")
	r.people.who = ferrule.Principal{}
	if w := r.send("GET", authorizePath+"?"+asking(id).Encode(), ""); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "state=xyz") {
		t.Errorf("nobody is logged in: %d %s", w.Code, w.Body)
	}
	r.people.who = operator
	page := r.send("GET", authorizePath+"?"+asking(id, "scope", "read change admin").Encode(), "")
	for _, part := range []string{"Test Agent", "nobody has verified", "localhost:4711", `value="change" checked`, `value="robot"`, "a lamp", `value="csrf-of-otto"`} {
		if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), part) {
			t.Errorf("the page has no %q: %d %s", part, page.Code, page.Body)
		}
	}
	if strings.Contains(page.Body.String(), `value="admin"`) {
		t.Error("an operator is asked for admin")
	}

	back := r.answer(asking(id), r.consent("device", "lamp"))
	if back.Get("state") != "xyz" || back.Get("iss") != origin {
		t.Errorf("sent back with %v", back)
	}
	out := r.token(exchanging(id, back.Get("code")))
	if out.Status != http.StatusOK || !strings.HasPrefix(out.Access, "fera_") || len(out.Access) != 48 || !strings.HasPrefix(out.Refresh, "ferr_") || out.Expires != 3600 || out.Scope != "read change offline_access" {
		t.Fatalf("%+v", out)
	}
	c, err := r.verify(out.Access)
	who := c.Who
	if err != nil || who.Role != ferrule.Agent || !strings.HasPrefix(who.Name, "oauth:otto/test-agent-") || who.User != "otto" || who.Auth != ferrule.AuthOAuth || who.Scopes.String() != "read change" || who.Devices != "lamp" || c.Device != "" {
		t.Errorf("%+v, %v", c, err)
	}
	all := r.Grants()
	if len(all) != 1 || all[0].Login.Agent != who.String() || all[0].From != "192.0.2.1" || all[0].Login.Person != "otto" {
		t.Errorf("%+v", all)
	}
	if err := r.Revoke(owner, all[0].Name); err != nil || c.Valid.Err() == nil || r.accepted(out.Access) || len(r.Grants()) != 0 {
		t.Errorf("not revoked: %v", err)
	}
	if ended, err := r.verify(out.Access); err != identity.ErrUnknown || ended.Who != who || ended.Valid != nil {
		t.Errorf("nobody knows whose token was revoked: %+v %v", ended, err)
	}
	r.sweep(time.Now().Add(accessTTL + endedTTL + time.Second))
	if len(r.ended) != 0 {
		t.Error("revoked tokens are never forgotten")
	}
	if again := r.token(refreshing(id, out.Refresh)); again.Error != "invalid_grant" {
		t.Errorf("refreshed after the end: %+v", again)
	}
	if err := r.Revoke(owner, all[0].Name); err == nil {
		t.Error("revoked twice")
	}
	for _, e := range []ferrule.AccessEvent{ferrule.AccessClientAdded, ferrule.AccessConsent, ferrule.AccessTokenAdded, ferrule.AccessTokenUsed, ferrule.AccessTokenRevoked} {
		if !r.recorded(e, false, "") {
			t.Errorf("%s is not recorded", e)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		for _, secret := range []string{out.Access, out.Refresh, back.Get("code"), "fera_", "ferr_", "ferc_"} {
			if strings.Contains(e.message+e.who, secret) {
				t.Errorf("a secret is recorded: %+v", e)
			}
		}
	}
}

// TestConsentLimits checks that nobody grants more than was asked, was chosen, and than the
// person has.
func TestConsentLimits(t *testing.T) {
	r := newTestServer(t, nil)
	id := r.register(callback)
	for _, test := range []struct {
		who    ferrule.Principal
		asked  string
		chosen []string
		want   string // empty if nothing is granted
	}{
		{owner, "read change endanger admin", []string{"read", "change", "endanger", "admin"}, "read change endanger metrics admin"},
		{owner, "read change", []string{"read"}, "read"},
		{owner, "read", []string{"read", "change", "admin"}, "read"},
		{owner, "", []string{"read", "change", "endanger"}, "read change endanger"},
		{owner, "openid devices:read read", []string{"read"}, "read"},
		{operator, "admin", []string{"admin"}, "read change endanger"},
		{viewer, "read change endanger", []string{"read", "change", "endanger"}, "read"},
		{viewer, "read", nil, ""},
	} {
		r.people.who = test.who
		form := r.consent()
		form["scope"] = test.chosen
		w := r.send("POST", authorizePath+"?"+asking(id, "scope", test.asked).Encode(), form.Encode())
		to, _ := url.Parse(w.Header().Get("Location"))
		if test.want == "" {
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "at least one") {
				t.Errorf("%+v: %d %s", test, w.Code, w.Body)
			}
			continue
		}
		out := r.token(exchanging(id, to.Query().Get("code")))
		if out.Scope != test.want {
			t.Errorf("%s asked for %q, chose %q: got %q (%s)", test.who.Name, test.asked, test.chosen, out.Scope, out.Text)
		}
	}
	r.people.who = owner
	for name, form := range map[string]url.Values{
		"no device":      r.consent("devices", "some"),
		"unknown device": r.consent("device", "safe"),
		"pattern":        r.consent("device", "*"),
		"unknown scope":  r.consent("scope", "everything"),
	} {
		if w := r.send("POST", authorizePath+"?"+asking(id).Encode(), form.Encode()); w.Code != http.StatusBadRequest || w.Header().Get("Location") != "" {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	if back := r.answer(asking(id), r.consent("answer", "deny")); back.Get("error") != "access_denied" || back.Get("iss") != origin || back.Get("code") != "" {
		t.Errorf("denied: %v", back)
	}
	if back := r.answer(asking(id, "scope", "nonsense"), r.consent()); back.Get("error") != "invalid_scope" {
		t.Errorf("%v", back)
	}
}

// TestAttacks has the attacks that a server must withstand.
func TestAttacks(t *testing.T) {
	run := func(name string, attack func(t *testing.T, r *testServer, id string)) {
		t.Run(name, func(t *testing.T) {
			r := newTestServer(t, nil)
			attack(t, r, r.register(callback))
		})
	}
	// refused checks the answer of the token endpoint, and that it was recorded.
	refused := func(t *testing.T, r *testServer, out reply, code string) {
		t.Helper()
		if out.Error != code || out.Access != "" || out.Status < 400 {
			t.Errorf("%+v", out)
		}
		if !r.recorded(ferrule.AccessTokenAdded, true, "") && !r.recorded(ferrule.AccessTokenRotated, true, "") {
			t.Error("not recorded")
		}
	}
	run("replayed code", func(t *testing.T, r *testServer, id string) {
		code := r.code(asking(id))
		out := r.token(exchanging(id, code))
		if !r.accepted(out.Access) {
			t.Fatalf("%+v", out)
		}
		r = r.restart()
		refused(t, r, r.token(exchanging(id, code)), "invalid_grant")
		if r.accepted(out.Access) || r.token(refreshing(id, out.Refresh)).Error == "" {
			t.Error("the tokens of the first use are still good")
		}
		if !r.recorded(ferrule.AccessTokenRevoked, false, "twice") {
			t.Error("the end is not recorded")
		}
	})
	run("expired code", func(t *testing.T, _ *testServer, _ string) {
		synctest.Test(t, func(t *testing.T) {
			r := newTestServer(t, nil)
			id := r.register(callback)
			code := r.code(asking(id))
			time.Sleep(codeTTL + time.Second)
			refused(t, r, r.token(exchanging(id, code)), "invalid_grant")
		})
	})
	for name, change := range map[string][]string{
		"missing PKCE":         {"code_challenge", "", "code_challenge_method", ""},
		"plain PKCE":           {"code_challenge", verifier, "code_challenge_method", "plain"},
		"PKCE without method":  {"code_challenge_method", ""},
		"method without PKCE":  {"code_challenge", ""},
		"short challenge":      {"code_challenge", "abc"},
		"implicit":             {"response_type", "token"},
		"fragment":             {"response_mode", "fragment"},
		"form_post":            {"response_mode", "form_post"},
		"request object":       {"request", "eyJ"},
		"request by reference": {"request_uri", "https://evil.example/request"},
		"other audience":       {"resource", "https://evil.example/mcp"},
		"audience lookalike":   {"resource", origin + "@evil.example/mcp"},
		"audience path":        {"resource", origin + "/mcp/devices/../.."},
		"audience userinfo":    {"resource", "http://u@127.0.0.1:7777/mcp"},
	} {
		run(name, func(t *testing.T, r *testServer, id string) {
			for _, method := range []string{"GET", "POST"} {
				w := r.send(method, authorizePath+"?"+asking(id, change...).Encode(), r.consent().Encode())
				to, _ := url.Parse(w.Header().Get("Location"))
				if back := to.Query(); w.Code != http.StatusSeeOther || back.Get("error") == "" || back.Get("code") != "" || back.Get("iss") != origin || back.Get("state") != "xyz" {
					t.Errorf("%s: %d to %s", method, w.Code, to)
				}
			}
			if !r.recorded(ferrule.AccessConsent, true, "") {
				t.Error("not recorded")
			}
		})
	}
	for name, change := range map[string][]string{
		"wrong verifier":   {"code_verifier", strings.Repeat("x", 43)},
		"no verifier":      {"code_verifier", ""},
		"challenge":        {"code_verifier", challengeOf(verifier)},
		"wrong redirect":   {"redirect_uri", "http://localhost:4712/callback"},
		"unknown code":     {"code", "ferc_" + strings.Repeat("A", 43)},
		"no code":          {"code", ""},
		"empty grant type": {"grant_type", ""},
	} {
		run(name, func(t *testing.T, r *testServer, id string) {
			code := r.code(asking(id))
			if out := r.token(exchanging(id, code, change...)); out.Error == "" || out.Access != "" {
				t.Errorf("%+v", out)
			}
			if len(change) == 2 && change[0] != "code" && change[0] != "grant_type" {
				if out := r.token(exchanging(id, code)); out.Error != "invalid_grant" {
					t.Errorf("the code is good for a second attempt: %+v", out)
				}
			}
		})
	}
	run("code of another client", func(t *testing.T, r *testServer, id string) {
		code, other := r.code(asking(id)), r.register(callback)
		refused(t, r, r.token(exchanging(other, code)), "invalid_grant")
		refused(t, r, r.token(exchanging(id, code)), "invalid_grant")
	})
	run("refresh token of another client", func(t *testing.T, r *testServer, id string) {
		out, other := r.login(id), r.register(callback)
		refused(t, r, r.token(refreshing(other, out.Refresh)), "invalid_grant")
		if !r.accepted(out.Access) {
			t.Error("another client can end the grant")
		}
	})
	run("unknown client", func(t *testing.T, r *testServer, id string) {
		out := r.token(exchanging("ferd_unknown", r.code(asking(id))))
		if out.Status != http.StatusUnauthorized {
			t.Errorf("%+v", out)
		}
		refused(t, r, out, "invalid_client")
	})
	run("open redirect", func(t *testing.T, r *testServer, id string) {
		evil := r.register("https://evil.example/cb")
		for _, q := range []url.Values{
			asking(id, "redirect_uri", "https://evil.example/cb"),
			asking(id, "redirect_uri", ""),
			asking("ferd_unknown", "redirect_uri", "https://evil.example/cb"),
			asking("", "redirect_uri", "https://evil.example/cb"),
			asking(evil, "redirect_uri", "https://evil.example/cb", "response_type", "token"),
			asking(evil, "redirect_uri", "https://evil.example/cb", "scope", "nonsense"),
			asking(evil, "redirect_uri", "https://evil.example/cb"),
		} {
			if w := r.send("GET", authorizePath+"?"+q.Encode(), ""); w.Header().Get("Location") != "" || w.Code/100 == 3 {
				t.Errorf("%v: sent to %s", q, w.Header().Get("Location"))
			}
		}
	})
	run("redirect in the address of the page", func(t *testing.T, r *testServer, id string) {
		r.people.who.Name = `"><script>alert(1)</script>`
		page := r.send("GET", authorizePath+"?"+asking(id, "state", `"><script>`).Encode(), "").Body.String()
		if strings.Contains(page, "<script") {
			t.Errorf("%s", page)
		}
	})
	run("mix-up", func(t *testing.T, r *testServer, id string) {
		for _, form := range []url.Values{r.consent(), r.consent("answer", "deny")} {
			if back := r.answer(asking(id), form); back.Get("iss") != origin {
				t.Errorf("%v", back)
			}
		}
	})
	run("CSRF on consent", func(t *testing.T, r *testServer, id string) {
		q := asking(id).Encode()
		for name, try := range map[string]struct {
			form url.Values
			head []string
		}{
			"without token":  {r.consent("csrf", ""), nil},
			"of another":     {r.consent("csrf", "csrf-of-vera"), nil},
			"token in query": {r.consent("csrf", ""), nil},
			"other origin":   {r.consent(), []string{"Origin", "https://evil.example"}},
			"null origin":    {r.consent(), []string{"Origin", "null"}},
			"other port":     {r.consent(), []string{"Origin", "http://127.0.0.1:8888"}},
			"cross-site":     {r.consent(), []string{"Sec-Fetch-Site", "cross-site"}},
		} {
			w := r.send("POST", authorizePath+"?"+q, try.form.Encode(), try.head...)
			if w.Code < 400 || w.Header().Get("Location") != "" {
				t.Errorf("%s: %d to %s", name, w.Code, w.Header().Get("Location"))
			}
		}
		if w := r.send("GET", authorizePath+"?"+q+"&"+r.consent().Encode(), ""); w.Header().Get("Location") != "" {
			t.Error("a GET is a consent")
		}
		if len(r.codes) != 0 || !r.recorded(ferrule.AccessConsent, true, "") {
			t.Errorf("%d codes", len(r.codes))
		}
	})
	run("clickjacking", func(t *testing.T, r *testServer, id string) {
		for _, q := range []url.Values{asking(id), asking("unknown")} {
			w := r.send("GET", authorizePath+"?"+q.Encode(), "")
			policy := w.Header().Get("Content-Security-Policy")
			if !strings.Contains(policy, "frame-ancestors 'none'") || !strings.Contains(policy, "default-src 'none'") || w.Header().Get("X-Frame-Options") != "DENY" {
				t.Errorf("%v", w.Header())
			}
			if strings.Contains(policy, "form-action") { // Chromium would not follow the redirect
				t.Error("form-action is set")
			}
			if !strings.Contains(policy, "style-src 'self'") || strings.Contains(policy, "script-src") {
				t.Error("the policy permits more than the style sheet of the gateway")
			}
			if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Referrer-Policy") != "same-origin" {
				t.Errorf("%v", w.Header())
			}
		}
	})
	run("token for another audience", func(t *testing.T, r *testServer, id string) {
		q := asking(id, "resource", origin+"/mcp/devices/lamp")
		page := r.send("GET", authorizePath+"?"+q.Encode(), "").Body.String()
		if !strings.Contains(page, "only the device <strong>lamp</strong>") {
			t.Error(page)
		}
		code := r.code(q)
		out := r.token(exchanging(id, code, "resource", origin+"/mcp/devices/lamp"))
		at := func(resource string) (identity.Credential, error) {
			return r.Verify(t.Context(), out.Access, identity.Request{Resource: resource, Time: time.Now()})
		}
		if c, err := at(origin + "/mcp/devices/lamp"); err != nil || c.Device != "lamp" || c.Who.Devices != "lamp" {
			t.Errorf("%+v %v", c, err)
		}
		for _, resource := range []string{origin + "/mcp", origin + "/mcp/devices/robot", origin + "/metrics"} {
			if c, err := at(resource); !errors.Is(err, identity.ErrAudience) || c.Who.User != "maria" || c.Valid != nil {
				t.Errorf("%s: %+v %v", resource, c, err)
			}
		}
		refused(t, r, r.token(refreshing(id, out.Refresh, "resource", origin+"/mcp")), "invalid_target")
		refused(t, r, r.token(exchanging(id, r.code(asking(id)), "resource", origin+"/mcp/devices/lamp")), "invalid_target")
		if out := r.token(exchanging(id, r.code(asking(id)), "resource", "https://evil.example/mcp")); out.Error != "invalid_target" {
			t.Errorf("%+v", out)
		}
	})
	run("scope widening at refresh", func(t *testing.T, r *testServer, id string) {
		out := r.login(id)
		for _, scope := range []string{"read change endanger", "admin", "everything", "metrics"} {
			refused(t, r, r.token(refreshing(id, out.Refresh, "scope", scope)), "invalid_scope")
		}
		narrow := r.token(refreshing(id, out.Refresh, "scope", "read"))
		if c, err := r.verify(narrow.Access); err != nil || c.Who.Scopes.String() != "read" {
			t.Errorf("%+v %v", c, err)
		}
		if again := r.token(refreshing(id, narrow.Refresh)); again.Scope != "read change offline_access" {
			t.Errorf("%+v", again)
		}
	})
	run("parameter pollution", func(t *testing.T, r *testServer, id string) {
		for _, name := range []string{"client_id", "redirect_uri", "state", "scope", "resource", "code_challenge", "unknown"} {
			w := r.send("GET", authorizePath+"?"+asking(id, "unknown", "1").Encode()+"&"+name+"=x", "")
			if w.Code != http.StatusBadRequest || w.Header().Get("Location") != "" {
				t.Errorf("%s twice: %d", name, w.Code)
			}
		}
		for _, name := range []string{"client_id", "code", "code_verifier", "grant_type", "redirect_uri"} {
			form := exchanging(id, r.code(asking(id)))
			form.Add(name, "x")
			refused(t, r, r.token(form), "invalid_request")
		}
		if out := r.token(url.Values{}); out.Error != "invalid_client" {
			t.Errorf("%+v", out)
		}
		w := r.send("POST", tokenPath+"?"+exchanging(id, r.code(asking(id))).Encode(), "")
		if w.Code == http.StatusOK {
			t.Error("secrets in the URL are accepted")
		}
		if w := r.send("POST", tokenPath, `{"grant_type":"authorization_code"}`, "Content-Type", "application/json"); w.Code != http.StatusBadRequest {
			t.Errorf("%d", w.Code)
		}
	})
	run("huge inputs", func(t *testing.T, r *testServer, id string) {
		long := strings.Repeat("a", 1<<20)
		for name, w := range map[string]*httptest.ResponseRecorder{
			"state":    r.send("GET", authorizePath+"?"+asking(id, "state", long).Encode(), ""),
			"form":     r.send("POST", authorizePath+"?"+asking(id).Encode(), r.consent("x", long).Encode()),
			"token":    r.send("POST", tokenPath, exchanging(id, long).Encode()),
			"register": r.send("POST", registerPath, `{"redirect_uris":["`+long+`"]}`),
			"many":     r.send("POST", registerPath, `{"redirect_uris":["https://a.example/`+strings.Repeat(`","https://a.example/`, 50)+`"]}`),
			"scope":    r.send("POST", registerPath, `{"redirect_uris":["https://a.example/"],"scope":"`+long[:2000]+`"}`),
		} {
			if w.Code < 400 || w.Code >= 500 || w.Body.Len() > 8<<10 {
				t.Errorf("%s: %d, %d bytes", name, w.Code, w.Body.Len())
			}
		}
	})
	run("wrong prefix", func(t *testing.T, r *testServer, id string) {
		out := r.login(id)
		for _, token := range []string{out.Refresh, "fer_" + out.Access[5:], strings.ToUpper(out.Access), "", "fera_"} {
			if _, err := r.verify(token); !errors.Is(err, identity.ErrUnknown) {
				t.Errorf("%q: %v", token, err)
			}
		}
	})
	run("methods", func(t *testing.T, r *testServer, id string) {
		for target, method := range map[string]string{tokenPath: "GET", registerPath: "PUT", revokePath: "GET", authorizePath: "DELETE", metadataPath: "POST"} {
			if w := r.send(method, target, ""); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, target, w.Code)
			}
		}
		if w := r.send("OPTIONS", tokenPath, "", "Origin", "https://app.example"); w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%d", w.Code)
		}
		if w := r.send("GET", authorizePath, ""); w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Error("other sites can read the consent page")
		}
	})
}

// TestRefresh checks rotation, the overlap, and that reuse ends the family.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestServer(t, nil)
		id := r.register(callback)
		first := r.login(id)
		c, err := r.verify(first.Access)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		second := r.token(refreshing(id, first.Refresh, "resource", origin+"/mcp"))
		if second.Status != http.StatusOK || second.Refresh == first.Refresh || second.Access == first.Access || !r.accepted(second.Access) {
			t.Fatalf("%+v", second)
		}
		if !r.accepted(first.Access) || c.Valid.Err() != nil {
			t.Error("a refresh ends the token before it")
		}
		time.Sleep(59 * time.Second)
		r = r.restart() // the successor is known also then
		if again := r.token(refreshing(id, first.Refresh)); again.Refresh != second.Refresh || again.Access != second.Access {
			t.Errorf("another process got %+v, want %+v", again, second)
		}
		third := r.token(refreshing(id, second.Refresh))
		if third.Status != http.StatusOK {
			t.Fatalf("%+v", third)
		}
		if again := r.token(refreshing(id, first.Refresh)); again.Refresh != second.Refresh {
			t.Errorf("%+v", again)
		}
		time.Sleep(61 * time.Second)
		if again := r.token(refreshing(id, first.Refresh)); again.Error != "invalid_grant" {
			t.Errorf("reuse: %+v", again)
		}
		if r.accepted(third.Access) || r.token(refreshing(id, third.Refresh)).Error != "invalid_grant" || len(r.Grants()) != 0 {
			t.Error("the family goes on after a reuse")
		}
		if !r.recorded(ferrule.AccessTokenRotated, true, "may be stolen") || !r.recorded(ferrule.AccessTokenRevoked, false, "may be stolen") {
			t.Error("the reuse is not recorded")
		}
		if len(r.refresh)+len(r.past)+len(r.used)+len(r.access) != 0 {
			t.Errorf("left: %d refresh, %d past, %d used, %d access", len(r.refresh), len(r.past), len(r.used), len(r.access))
		}

		// One that was replaced long before is noticed too.
		out := r.login(id)
		old := out.Refresh
		for range 10 {
			time.Sleep(2 * time.Hour)
			if out = r.token(refreshing(id, out.Refresh)); out.Status != http.StatusOK {
				t.Fatalf("%+v", out)
			}
		}
		r.sweep(time.Now())
		if g := r.Grants(); len(r.access) != 1 || len(g) != 1 {
			t.Errorf("%d access tokens, %d grants", len(r.access), len(g))
		}
		r = r.restart()
		r.token(refreshing(id, old))
		if r.accepted(out.Access) {
			t.Error("the reuse of an old refresh token is not noticed")
		}

		// They slide by 30 days.
		out = r.login(id)
		time.Sleep(29 * 24 * time.Hour)
		r.sweep(time.Now())
		if c, err := r.verify(out.Access); !errors.Is(err, identity.ErrExpired) || c.Who.User != "maria" || c.Valid != nil {
			t.Errorf("an old access token: %+v %v", c, err)
		}
		if out = r.token(refreshing(id, out.Refresh)); out.Status != http.StatusOK {
			t.Fatalf("%+v", out)
		}
		c, _ = r.verify(out.Access)
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, err := r.verify(out.Access); !errors.Is(err, identity.ErrExpired) || c.Valid.Err() == nil {
			t.Errorf("an expired token: %v", err)
		}
		time.Sleep(30 * 24 * time.Hour)
		if again := r.token(refreshing(id, out.Refresh)); again.Error != "invalid_grant" {
			t.Errorf("after 30 days: %+v", again)
		}
	})
}

// TestRestart checks that clients, grants and tokens survive a restart, and that the file
// has no secrets.
func TestRestart(t *testing.T) {
	r := newTestServer(t, nil)
	id := r.register(callback)
	out := r.login(id)
	r = r.restart()
	if !r.accepted(out.Access) || r.token(refreshing(id, out.Refresh)).Status != http.StatusOK {
		t.Error("a restart ends the tokens")
	}
	for _, value := range r.file.All() {
		if strings.Contains(string(value), out.Access[5:]) || strings.Contains(string(value), out.Refresh[5:]) {
			t.Errorf("a secret is stored: %s", value)
		}
	}
	if r.EndGrants("nobody", false) != 0 || !r.accepted(out.Access) {
		t.Error("the grants of somebody else ended")
	}
	code := r.code(asking(id))
	if ended := r.EndGrants("maria", false); ended != 2 {
		t.Errorf("%d ended", ended)
	}
	if r.accepted(out.Access) || r.token(exchanging(id, code)).Error != "invalid_grant" {
		t.Error("the grants of a person who was removed go on")
	}
	if r = r.restart(); r.accepted(out.Access) {
		t.Error("the grant is back after a restart")
	}
}

// TestHiddenDevices checks that the page says how many devices it does not show.
func TestHiddenDevices(t *testing.T) {
	r := newTestServer(t, func(p *Parts) {
		p.Devices = func(ferrule.Principal) []Device { return make([]Device, maxShown+7) }
	})
	page := r.send("GET", authorizePath+"?"+asking(r.register(callback)).Encode(), "").Body.String()
	if !strings.Contains(page, "7 more devices are not shown") {
		t.Error("it does not")
	}
}

// TestRevoke checks that programs can log out.
func TestRevoke(t *testing.T) {
	r := newTestServer(t, nil)
	id, other := r.register(callback), r.register(callback)
	revoke := func(id, token string) int {
		return r.send("POST", revokePath, url.Values{"client_id": {id}, "token": {token}}.Encode()).Code
	}
	out := r.login(id)
	if revoke(other, out.Refresh) != 200 || revoke(other, out.Access) != 200 || revoke(id, "unknown") != 200 || !r.accepted(out.Access) {
		t.Error("another program revokes a token")
	}
	c, _ := r.verify(out.Access)
	if revoke(id, out.Access) != 200 || r.accepted(out.Access) || c.Valid.Err() == nil {
		t.Error("the access token is not revoked")
	}
	out = r.token(refreshing(id, out.Refresh))
	if out.Status != 200 || revoke(id, out.Refresh) != 200 || r.accepted(out.Access) || len(r.Grants()) != 0 {
		t.Error("the grant is not revoked")
	}
	if revoke("unknown", out.Refresh) != http.StatusUnauthorized {
		t.Error("an unknown client is not refused")
	}
}

// TestTokenID: a login that is refreshed stays the same one, also after a restart, and another
// login of the same program by the same person is another one.
func TestTokenID(t *testing.T) {
	r := newTestServer(t, nil)
	id := r.register(callback)
	who := func(out reply) ferrule.Principal {
		t.Helper()
		c, err := r.verify(out.Access)
		if err != nil || !strings.HasPrefix(c.Who.TokenID, GrantPrefix) {
			t.Fatalf("got %+v, %v", c, err)
		}
		return c.Who
	}
	ended := func(id string) string {
		ended, known := r.Ended(id)
		return fmt.Sprint(ended, known)
	}
	out := r.login(id)
	first := who(out)
	out = r.token(refreshing(id, out.Refresh))
	if who(out) != first || r.Grants()[0].ID != first.TokenID || ended(first.TokenID) != "false true" {
		t.Errorf("a refresh makes %+v of %+v", who(out), first)
	}
	if r = r.restart(); who(out) != first || ended(first.TokenID) != "false true" {
		t.Errorf("a restart makes %+v of %+v", who(out), first)
	}
	if err := r.Revoke(owner, first.TokenID); err != nil || ended(first.TokenID) != "true true" {
		t.Errorf("not revoked: %v", err)
	}
	again := who(r.login(id))
	if again.Name != first.Name || again.TokenID == first.TokenID || ended(first.TokenID) != "true true" || ended(again.TokenID) != "false true" {
		t.Errorf("got %+v after %+v", again, first)
	}
	if r = r.restart(); ended(first.TokenID) != "true false" {
		t.Errorf("a grant of an earlier run: ended and known are %s", ended(first.TokenID))
	}
}

// TestConfidential checks programs that the owner registered.
func TestConfidential(t *testing.T) {
	r := newTestServer(t, nil)
	const id, to = "home-assistant", "https://my.home-assistant.io/redirect/oauth"
	ask := func(changes ...string) url.Values {
		return changed(asking(id, "redirect_uri", to, "code_challenge", "", "code_challenge_method", "", "resource", ""), changes)
	}
	get := func(changes ...string) url.Values {
		return changed(exchanging(id, r.code(ask()), "redirect_uri", to, "code_verifier", "", "resource", "", "client_secret", secret), changes)
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(id+":"+secret))
	out := r.token(get())
	if out.Status != http.StatusOK {
		t.Fatalf("%+v", out)
	}
	if c, err := r.verify(out.Access); err != nil || c.Who.Name != "oauth:maria/home-assistant" {
		t.Errorf("%+v %v", c, err)
	}
	if out := r.token(get("client_secret", ""), "Authorization", basic); out.Status != http.StatusOK {
		t.Errorf("%+v", out)
	}
	if out := r.token(refreshing(id, out.Refresh, "client_secret", secret)); out.Status != http.StatusOK {
		t.Errorf("%+v", out)
	}
	for name, try := range map[string]struct {
		form url.Values
		head []string
		want string
	}{
		"no secret":        {get("client_secret", ""), nil, "invalid_client"},
		"wrong secret":     {get("client_secret", "0123456789abcdeX"), nil, "invalid_client"},
		"both":             {get(), []string{"Authorization", basic}, "invalid_client"},
		"refresh without":  {refreshing(id, out.Refresh), nil, "invalid_client"},
		"no redirect":      {get("redirect_uri", ""), nil, "invalid_grant"},
		"PKCE downgrade":   {get("code_verifier", verifier), nil, "invalid_grant"},
		"other ID":         {get("client_secret", "", "client_id", "x"), []string{"Authorization", basic}, "invalid_client"},
		"malformed header": {get("client_secret", ""), []string{"Authorization", "Basic !"}, "invalid_client"},
	} {
		if out := r.token(try.form, try.head...); out.Error != try.want {
			t.Errorf("%s: %+v", name, out)
		}
	}
	// If there is a challenge, it is checked.
	q := ask("code_challenge", challengeOf(verifier), "code_challenge_method", "S256")
	for wrong, status := range map[string]int{verifier: 200, strings.Repeat("x", 50): 400, "": 400} {
		if out := r.token(exchanging(id, r.code(q), "redirect_uri", to, "resource", "", "code_verifier", wrong, "client_secret", secret)); out.Status != status {
			t.Errorf("%q: %+v", wrong, out)
		}
	}
	if public := r.register(callback); r.token(exchanging(public, r.code(asking(public)), "client_secret", "guess")).Error != "invalid_client" {
		t.Error("a public client with a secret")
	}
}

// BenchmarkVerify measures the check of a token. It should take less than 5 µs.
func BenchmarkVerify(b *testing.B) {
	r := newTestServer(b, nil)
	token := r.login(r.register(callback)).Access
	for b.Loop() {
		if !r.accepted(token) {
			b.Fatal("not accepted")
		}
	}
}

// TestConfig checks what is refused.
func TestConfig(t *testing.T) {
	good := Client{ID: "ha", Secret: secret, Redirects: []string{"https://a.example/cb"}}
	for want, clients := range map[string][]Client{
		"":                      {good},
		"clients[1].id: ":       {good, good},
		"clients[0].id: ":       {{ID: "a b"}},
		"clients[0].secret: ":   {{ID: "a", Secret: "short"}},
		"clients[0].redirects:": {{ID: "a", Secret: secret}},
		"cannot send people":    {{ID: "a", Secret: secret, Redirects: []string{"http://evil.example/"}}},
	} {
		err := Config{Clients: clients}.Check()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short")) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
