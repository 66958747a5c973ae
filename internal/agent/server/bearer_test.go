package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// closed lets nobody in without a token.
func closed() (context.Context, bool) { return context.Background(), false }

// scopesOf returns a set of scopes.
func scopesOf(t testing.TB, names ...string) ferrule.Scopes {
	t.Helper()
	s, err := ferrule.ParseScopes(names)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testTokens is a Verifier: credentials and errors by token.
type testTokens map[string]any

func (all testTokens) verify(_ context.Context, token string, _ identity.Request) (c identity.Credential, err error) {
	switch v := all[token].(type) {
	case identity.Credential:
		v.Valid = context.Background()
		return v, nil
	case error:
		return c, v
	}
	return c, identity.ErrUnknown
}

// resourceTokens are tokens of all kinds.
func resourceTokens(t testing.TB) testTokens {
	all, metrics := scopesOf(t, "endanger", "metrics"), scopesOf(t, "metrics")
	claude := ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthOAuth, Scopes: all}
	few, lamps := claude, claude
	few.Scopes, lamps.Devices = metrics, "lamp-*"
	return testTokens{
		"good": identity.Credential{Who: claude}, "robot": identity.Credential{Who: claude, Device: "robot"}, "few": identity.Credential{Who: few}, "lamps": identity.Credential{Who: lamps},
		"expired": identity.ErrExpired, "elsewhere": fmt.Errorf("aud: %w", identity.ErrAudience), "unreachable": errors.New("https://issuer.internal/keys: no route to host"),
	}
}

// TestResourceServer checks what a request gets that is not served, whatever it asks for: a
// response never says what exists here. "-" is a request that is served, or refused for
// another reason.
func TestResourceServer(t *testing.T) {
	const denied, invalid, few = "401", "401 invalid_token", "403 insufficient_scope"
	for _, test := range []struct {
		name, header           string
		fleet, device, unknown string // at /mcp, /mcp/devices/robot and /mcp/devices/ghost
	}{
		{"no token", "", denied, denied, denied},
		{"another scheme", "Basic Zm9vOmJhcg==", denied, denied, denied},
		{"garbage", "Bearer garbage", invalid, invalid, invalid},
		{"expired", "Bearer expired", invalid, invalid, invalid},
		{"other audience", "Bearer elsewhere", invalid, invalid, invalid},
		{"token of a device", "Bearer robot", invalid, "-", invalid},
		{"too few scopes", "Bearer few", few, few, few},
		{"issuer unreachable", "Bearer unreachable", "503", "503", "503"},
		{"without a token", "Bearer", "400 invalid_request", "400 invalid_request", "400 invalid_request"},
		{"two tokens", "Bearer good good", "400 invalid_request", "400 invalid_request", "400 invalid_request"},
		{"too long", "Bearer " + strings.Repeat("a", maxToken+1), "400 invalid_request", "400 invalid_request", "400 invalid_request"},
		{"token for other devices", "Bearer lamps", "-", "404", "404"},
		{"good", "Bearer good", "-", "-", "404"},
		{"lower case", "bearer good", "-", "-", "404"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newServer(t, nil, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
				f.parts.Verify, f.parts.Open = resourceTokens(t).verify, closed
				for path, want := range map[string]string{"/mcp": test.fleet, "/mcp/devices/robot": test.device, "/mcp/devices/ghost": test.unknown} {
					for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodPatch} {
						for _, version := range append(versions, "2024-11-05", "") {
							for _, server := range []string{"", "https://login.example"} {
								f.parts.AuthServers = func(string) []string { return strings.Fields(server) }
								f.wrong = newWrongTokens() // TestWrongTokens sends too many
								got, header := refusalOf(f.Handler(), method, path, version, test.header)
								if want == "-" && (strings.HasPrefix(got, "401") || strings.HasPrefix(got, "403") || strings.HasPrefix(got, "400 invalid") || got == "503") ||
									want != "-" && got != want {
									t.Errorf("%s %s %s: got %s, want %s", method, path, version, got, want)
								}
								named := strings.Contains(header, `resource_metadata="http://gw.example/.well-known/oauth-protected-resource`+path+`"`) && strings.Contains(header, `scope="`)
								if needed := server != "" && (strings.HasPrefix(want, "401") || strings.HasPrefix(want, "403")); named != needed || server == "" && strings.Contains(header, "resource_metadata") {
									t.Errorf("%s %s %s, server %q: %s", method, path, version, server, header)
								}
							}
						}
					}
				}
			})
		})
	}
}

// TestMadeUpSession checks that a session that the caller made up opens no address.
func TestMadeUpSession(t *testing.T) {
	f := newServer(t, nil, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
	f.parts.Verify, f.parts.Open = resourceTokens(t).verify, closed
	for _, test := range []struct{ token, device string }{{"lamps", "robot"}, {"good", "ghost"}} {
		for _, version := range append(versions, "") {
			r := httptest.NewRequest(http.MethodPost, "/mcp/devices/"+test.device, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			r.Header.Set("Authorization", "Bearer "+test.token)
			r.Header.Set(mcphttp.SessionHeader, "made-up")
			if version != "" {
				r.Header.Set(mcphttp.VersionHeader, version)
			}
			w := httptest.NewRecorder()
			f.Handler().ServeHTTP(w, r)
			if w.Code != http.StatusNotFound {
				t.Errorf("%s %s %s: %d %s", test.token, test.device, version, w.Code, w.Body)
			}
		}
	}
}

// refusalOf sends a request and returns its status with the error of RFC 6750, and the
// header WWW-Authenticate. Each request has another address, so that it is not delayed long.
func refusalOf(h http.Handler, method, path, version, authorization string) (got, header string) {
	return refusalWith(h, method, path, version, authorization, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
}

// refusalWith is refusalOf with a body.
func refusalWith(h http.Handler, method, path, version, authorization, body string) (got, header string) {
	r := httptest.NewRequest(method, "http://gw.example"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if version != "" {
		r.Header.Set(mcphttp.VersionHeader, version)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	header = w.Header().Get("WWW-Authenticate")
	_, code, _ := strings.Cut(header, `error="`)
	code, _, _ = strings.Cut(code, `"`)
	return strings.TrimSpace(fmt.Sprint(w.Code, " ", code)), header
}

// TestChallenges checks the exact header of a refusal, which programs parse, and that its
// body tells a person what to do and no secret.
func TestChallenges(t *testing.T) {
	const metadata = `resource_metadata="http://gw.example/.well-known/oauth-protected-resource/mcp"`
	for _, test := range []struct{ server, token, want string }{
		{"", "", `Bearer`},
		{"", "Bearer garbage", `Bearer error="invalid_token"`},
		{"https://login.example", "", `Bearer scope="read change", ` + metadata},
		{"https://login.example", "Bearer garbage", `Bearer error="invalid_token", scope="read change", ` + metadata},
		{"https://login.example", "Bearer few", `Bearer error="insufficient_scope", scope="read metrics", ` + metadata + `, error_description="this address needs a token with the scope read"`},
		{"https://login.example", "Bearer unreachable", ""},
	} {
		f := newServer(t, nil)
		f.parts.Verify, f.parts.Open, f.parts.AuthServers = resourceTokens(t).verify, closed, func(string) []string { return strings.Fields(test.server) }
		r := httptest.NewRequest(http.MethodPost, "http://gw.example/mcp", nil)
		if test.token != "" {
			r.Header.Set("Authorization", test.token)
		}
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)
		body := w.Body.String()
		if got := w.Header().Get("WWW-Authenticate"); got != test.want {
			t.Errorf("%q: got  %s\nwant %s", test.token, got, test.want)
		}
		if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		if !strings.Contains(body, " token") || strings.Contains(body, "garbage") || strings.Contains(body, "issuer.internal") {
			t.Errorf("%q: the body is %s", test.token, body)
		}
	}
}

// TestRefusalTexts checks that a refusal says how to get a token for this address, and
// mentions a login only where there is one.
func TestRefusalTexts(t *testing.T) {
	const login = "https://login.example"
	for _, test := range []struct{ server, path, header, want, not string }{
		{"", "/mcp", "", "ferrule setup CLIENT --http", "log in"},
		{login, "/mcp", "", "start the login", "--scope metrics"},
		{"", "/mcp", "fer_secret", "has no `Bearer`", "secret"},
		{"", "/mcp", "Bearer garbage", "Use another token. ", "log in"},
		{login, "/mcp", "Bearer garbage", "Use another token, or log in again. ", "garbage"},
		{"", "/mcp", "Bearer expired", "has expired", "log in"},
		{login, "/metrics", "", "`ferrule token add prometheus --scope metrics`", "log"},
		{login, "/metrics", "Bearer garbage", "`ferrule token add prometheus --scope metrics`", "log in"},
		{"", "/metrics", "Bearer reader", "`ferrule token add prometheus --scope metrics`", "log in"},
	} {
		f := newServer(t, nil)
		all := resourceTokens(t)
		all["reader"] = identity.Credential{Who: ferrule.Principal{Role: ferrule.Agent, Name: "reader", Scopes: scopesOf(t, "read")}}
		f.parts.Verify, f.parts.Open, f.parts.AuthServers = all.verify, closed, func(string) []string { return strings.Fields(test.server) }
		needs := ferrule.ScopeRead
		if test.path == "/metrics" {
			needs = ferrule.ScopeMetrics
		}
		r := httptest.NewRequest(http.MethodGet, "http://gw.example"+test.path, nil)
		if test.header != "" {
			r.Header.Set("Authorization", test.header)
		}
		w := httptest.NewRecorder()
		f.Protected(needs, http.NotFoundHandler()).ServeHTTP(w, r)
		if body := w.Body.String(); !strings.Contains(body, test.want) || strings.Contains(body, test.not) {
			t.Errorf("%+v: got %d %s", test, w.Code, body)
		}
	}
}

// TestTokenInURL checks that a token in a URL, a form, or one of two headers is not accepted.
func TestTokenInURL(t *testing.T) {
	f := newServer(t, nil)
	f.parts.Verify, f.parts.Open = resourceTokens(t).verify, closed
	for _, query := range []string{"?access_token=good", "?token=good", "?authorization=Bearer+good"} {
		r := httptest.NewRequest(http.MethodPost, "/mcp"+query, strings.NewReader("access_token=good"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header["Authorization"] = []string{"Bearer good", "Bearer garbage"} // who knows which one counts
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || w.Header().Get("WWW-Authenticate") != `Bearer error="invalid_request"` {
		t.Errorf("two headers: %d %v", w.Code, w.Header())
	}
}

// TestOpenWithToken checks that an agent that shows a token is known by it even where none is
// needed, and that a wrong one is refused: a person would not notice otherwise.
func TestOpenWithToken(t *testing.T) {
	f := newServer(t, nil)
	f.parts.Verify = resourceTokens(t).verify
	var who ferrule.Principal
	h := f.Protected(ferrule.ScopeRead, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who = caller(r.Context()) }))
	for _, test := range []struct {
		header string
		status int
		name   string
	}{{"", 200, "local/unnamed"}, {"Bearer good", 200, "claude"}, {"Bearer expired", 401, ""}, {"Bearer", 400, ""}} {
		who = ferrule.Principal{}
		r := at(t, "127.0.0.1:3377", "127.0.0.1:3377", http.MethodPost, "/mcp")
		if test.header != "" {
			r.Header.Set("Authorization", test.header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.status || who.Name != test.name {
			t.Errorf("%q: %d, %s", test.header, w.Code, who)
		}
	}
}

// TestAudience checks which resource a verifier is asked about. It is not asked about a name
// that a caller may have chosen because it has a token for it.
func TestAudience(t *testing.T) {
	const path, robot = "/mcp", "/mcp/devices/robot"
	for _, test := range []struct {
		local, host, url, path string
		hosts                  []string
		want                   string
	}{
		{"127.0.0.1:3377", "127.0.0.1:3377", "", path, nil, "http://127.0.0.1:3377/mcp"},
		{"127.0.0.1:3377", "localhost:3377", "", robot, nil, "http://localhost:3377/mcp/devices/robot"},
		{"[::1]:3377", "localhost:3377", "", path + "?x=1", nil, "http://localhost:3377/mcp"},
		{"192.0.2.7:3377", "192.0.2.7:3377", "", path, nil, "http://192.0.2.7:3377/mcp"},
		{"192.0.2.7:3377", "gw.example", "", path, []string{"gw.example"}, "http://gw.example/mcp"},
		{"192.0.2.7:3377", "evil.example", "", path, []string{"gw.example"}, ""},
		{"192.0.2.7:3377", "localhost:3377", "", path, nil, ""},
		{"192.0.2.7:3377", "192.0.2.8", "", path, nil, ""},
		{"127.0.0.1:3377", "localhost:9000", "", path, nil, ""}, // another server on this machine
		{"127.0.0.1:3377", "127.0.0.1:9000", "", robot, nil, ""},
		{"127.0.0.1:3377", "localhost", "", path, nil, ""},
		{"127.0.0.1:3377", "localhost:", "", path, nil, ""},
		{"127.0.0.1:80", "localhost", "", path, nil, "http://localhost/mcp"},
		{"192.0.2.7:3377", "192.0.2.7:9000", "", path, nil, ""},
		{"192.0.2.7:3377", "gw.example:3377", "", path, []string{"gw.example"}, "http://gw.example:3377/mcp"},
		{"192.0.2.7:3377", "gw.example:443", "", path, []string{"gw.example"}, "http://gw.example:443/mcp"},
		{"192.0.2.7:3377", "gw.example:9000", "", path, []string{"gw.example"}, ""},
		{"192.0.2.7:3377", "evil.example", "https://gw.example", path, nil, "https://gw.example/mcp"},
		{"127.0.0.1:3377", "127.0.0.1:3377", "", robot + "/x", nil, "http://127.0.0.1:3377/mcp"},
		{"127.0.0.1:3377", "127.0.0.1:3377", "", "/metrics", nil, "http://127.0.0.1:3377/mcp"},
	} {
		f := newServer(t, nil)
		f.parts.URL = test.url
		f.SetHosts(test.hosts)
		asked := "nobody"
		f.parts.Verify = func(_ context.Context, _ string, r identity.Request) (c identity.Credential, err error) {
			asked = r.Resource
			return c, identity.ErrAudience
		}
		r := at(t, test.local, test.host, http.MethodPost, test.path)
		r.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		f.Protected(ferrule.ScopeRead, http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized || asked != test.want {
			t.Errorf("%+v: %d, asked about %q", test, w.Code, asked)
		}
	}
}

// at returns a request that comes in at an address, for a host.
func at(t *testing.T, local, host, method, path string) *http.Request {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp", local)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(address)), method, path, nil)
	r.Host = host
	return r
}

// TestMetadata checks where the metadata of addresses is served, and what it is.
func TestMetadata(t *testing.T) {
	const well = "/.well-known/oauth-protected-resource"
	f := newServer(t, nil)
	f.parts.Verify, f.parts.Open = resourceTokens(t).verify, closed
	get := func(method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://gw.example:3377"+path, nil)
		r.Header.Set("Origin", "http://inspector.example")
		w := httptest.NewRecorder()
		f.Metadata().ServeHTTP(w, r)
		return w
	}
	if w := get(http.MethodGet, well+"/mcp"); w.Code != http.StatusNotFound {
		t.Errorf("without an authorization server: %d %s", w.Code, w.Body)
	}
	f.parts.AuthServers = func(origin string) []string { return []string{origin, "https://login.example"} }
	document := func(resource, name string) string {
		return `{"resource":"http://gw.example:3377` + resource + `","authorization_servers":["http://gw.example:3377","https://login.example"],` +
			`"scopes_supported":["read","change","endanger"],"bearer_methods_supported":["header"],"resource_name":"` + name + `"}`
	}
	for path, want := range map[string]string{
		well: document("/mcp", "Ferrule"), well + "/mcp": document("/mcp", "Ferrule"),
		well + "/mcp/devices/robot": document("/mcp/devices/robot", "Ferrule: robot"),
		well + "/mcp/devices/ghost": document("/mcp/devices/ghost", "Ferrule: ghost"),
		well + "/metrics":           "", well + "/mcp/": "", well + "/mcp/devices/": "", well + "/mcp/devices/a/b": "", well + "/mcp/devices/No%20Name": "",
	} {
		w := get(http.MethodGet, path)
		if want == "" {
			if w.Code != http.StatusNotFound {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
			continue
		}
		h := w.Header()
		if w.Code != http.StatusOK || w.Body.String() != want || h.Get("Content-Type") != "application/json" || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Cache-Control") == "" {
			t.Errorf("%s: %d %s %v\nwant %s", path, w.Code, w.Body, h, want)
		}
	}
	if w := get(http.MethodHead, well+"/mcp"); w.Code != http.StatusOK {
		t.Errorf("HEAD: %d", w.Code)
	}
	if w := get(http.MethodOptions, well+"/mcp"); w.Code != http.StatusNoContent || !strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "Mcp-Protocol-Version") {
		t.Errorf("OPTIONS: %d %v", w.Code, w.Header())
	}
	if w := get(http.MethodPost, well+"/mcp"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestRefreshedSession checks that a session goes on with another token of its principal,
// with the scopes of that token, and not with the token of anybody else or for other devices.
func TestRefreshedSession(t *testing.T) {
	var scopes ferrule.Scopes
	f := newServer(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		scopes = call.Principal.Scopes
		call.Target.Tool = &ferrule.Tool{}
		return &ferrule.Result{Value: []byte("1")}, nil
	}, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
	claude := ferrule.Principal{Role: ferrule.Agent, Name: "oauth:maria/claude", Auth: ferrule.AuthOAuth, Scopes: scopesOf(t, "change")}
	less, other, few := claude, claude, claude
	less.Scopes, other.Name, few.Devices = scopesOf(t, "read"), "oauth:maria/codex", "lamp-*"
	f.parts.Open = closed
	f.parts.Verify = testTokens{
		"first": identity.Credential{Who: claude}, "second": identity.Credential{Who: less}, "other": identity.Credential{Who: other}, "robot": identity.Credential{Who: claude, Device: "robot"}, "few": identity.Credential{Who: few},
	}.verify
	web := httptest.NewServer(f.Handler())
	defer web.Close()
	session := ""
	send := func(path, token, body string) (int, string) {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set(mcphttp.SessionHeader, session)
			r.Header.Set(mcphttp.VersionHeader, mcphttp.SessionVersion)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if session == "" {
			session = answer.Header.Get(mcphttp.SessionHeader)
		}
		return answer.StatusCode, string(text)
	}
	send("/mcp", "first", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"a","version":"1"},"capabilities":{}}}`)
	send("/mcp", "first", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"robot__look"}}`
	for _, test := range []struct {
		path, token string
		status      int
		scopes      ferrule.Scopes
	}{
		{"/mcp", "first", 200, claude.Scopes}, {"/mcp", "second", 200, less.Scopes}, {"/mcp", "first", 200, claude.Scopes},
		{"/mcp", "other", 403, 0}, {"/mcp/devices/robot", "robot", 403, 0}, {"/mcp", "few", 403, 0},
	} {
		scopes = 0
		if status, text := send(test.path, test.token, call); status != test.status || scopes != test.scopes {
			t.Errorf("%+v: %d %s, scopes %q", test, status, text, scopes)
		}
	}
}

// TestDeviceToken checks that the token of a device reaches no other one through the
// gateway's own tools.
func TestDeviceToken(t *testing.T) {
	f := newServer(t, nil)
	f.parts.Verify = testTokens{
		"robot": identity.Credential{Who: ferrule.Principal{Name: "a"}, Device: "robot"}, "within": identity.Credential{Who: ferrule.Principal{Name: "a", Devices: "rob*"}, Device: "robot"},
		"never": identity.Credential{Who: ferrule.Principal{Name: "a", Devices: "lamp"}, Device: "robot"}, "gateway": identity.Credential{Who: ferrule.Principal{Name: "a"}, Device: ferrule.GatewayID},
	}.verify
	for token, want := range map[string]string{"robot": "robot", "within": "robot", "never": "lamp", "gateway": ferrule.GatewayID} {
		device := "robot"
		if token == "gateway" {
			device = ferrule.GatewayID
		}
		r := httptest.NewRequest(http.MethodPost, "/mcp/devices/"+device, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		c, refused := f.authenticate(r, ferrule.ScopeRead)
		if refused != nil || c.Who.Devices != want {
			t.Errorf("%s: %+v, %+v", token, c.Who, refused)
		}
	}
}

// TestStepUp checks that a call that needs more scopes is refused before anything of the
// request runs, in a form that a program can act on, and only if its token can get more.
func TestStepUp(t *testing.T) {
	served := 0
	f := newServer(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		served++
		call.Target.Tool = &ferrule.Tool{}
		return &ferrule.Result{Value: []byte("1")}, nil
	}, ferrule.Tool{Name: "look", Effect: ferrule.Reads}, ferrule.Tool{Name: "move", Effect: ferrule.Changes}, ferrule.Tool{Name: "burn", Effect: ferrule.Endangers},
		ferrule.Tool{Name: "reset", Effect: ferrule.Changes, UserOnly: true})
	f.parts.Catalog.Put(&ferrule.Device{ID: ferrule.GatewayID, Kind: "g", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		&ferrule.Manifest{Model: "ferrule", Tools: []ferrule.Tool{{Name: ferrule.StopTool, Effect: ferrule.Changes}, {Name: "call_many", Effect: ferrule.Endangers}}})
	who := func(auth ferrule.Auth, scopes ...string) identity.Credential {
		return identity.Credential{Who: ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: auth, Scopes: scopesOf(t, scopes...)}}
	}
	f.parts.Open, f.parts.AuthServers = closed, func(origin string) []string { return []string{origin} }
	f.parts.Verify = testTokens{
		"read": who(ferrule.AuthOAuth, "read"), "issuer": who(ferrule.AuthIssuer, "read", "metrics"), "change": who(ferrule.AuthOAuth, "change"),
		"all": who(ferrule.AuthOAuth, "endanger"), "static": who(ferrule.AuthToken, "read"),
	}.verify
	var recorded []string
	f.parts.Record = func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code) {
		recorded = append(recorded, fmt.Sprint(who.Name, " ", event, " ", from, " ", refused, ": ", message))
	}
	call := func(tool string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"` + tool + `","arguments":{}}}`
	}
	for _, test := range []struct {
		token, path, body, scopes string // scopes of the challenge; empty if the request goes on
	}{
		{"read", "/mcp", call("robot__look"), ""},
		{"read", "/mcp", call("robot__move"), "read change"},
		{"read", "/mcp", call("robot__burn"), "read change endanger"},
		{"read", "/mcp/devices/robot", call("move"), "read change"},
		{"read", "/mcp/devices/robot", call("look"), ""},
		{"issuer", "/mcp", call("robot__move"), "read change metrics"},
		{"change", "/mcp", call("robot__move"), ""},
		{"change", "/mcp", call("robot__burn"), "read change endanger"},
		{"all", "/mcp", call("robot__burn"), ""},
		{"static", "/mcp", call("robot__burn"), ""},      // the pipeline says what to do
		{"read", "/mcp", call("gateway__call_many"), ""}, // and decides on each call within
		{"read", "/mcp", call("gateway__" + ferrule.StopTool), ""},
		{"read", "/mcp", call("robot__reset"), ""}, // it is not for agents, whatever they are granted
		{"read", "/mcp", call("ghost__move"), ""},
		{"read", "/mcp", call("robot__fly"), ""},
		{"read", "/mcp", "[" + call("robot__look") + "," + call("robot__move") + "]", "read change"},
		{"read", "/mcp", "[" + call("robot__burn") + "," + call("robot__move") + "]", "read change endanger"},
		{"read", "/mcp", "[" + call("robot__look") + "]", ""},
	} {
		for _, version := range []string{"2025-03-26", mcphttp.StatelessVersion} {
			before := served
			recorded = nil
			r := httptest.NewRequest(http.MethodPost, "http://gw.example"+test.path, strings.NewReader(test.body))
			r.Header.Set("Authorization", "Bearer "+test.token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			r.Header.Set(mcphttp.VersionHeader, version)
			r.Header.Set("Mcp-Method", "tools/call")
			w := httptest.NewRecorder()
			f.Handler().ServeHTTP(w, r)
			header := w.Header().Get("WWW-Authenticate")
			if test.scopes == "" {
				if w.Code == http.StatusForbidden || header != "" || recorded != nil {
					t.Errorf("%s %s %s: %d %s %q", version, test.token, test.body, w.Code, header, recorded)
				}
				continue
			}
			if len(recorded) != 1 || !strings.HasPrefix(recorded[0], "claude token_used 192.0.2.1:1234 denied: ") || !strings.Contains(recorded[0], " needs the scope ") {
				t.Errorf("%s %s %s: recorded %q", version, test.token, test.body, recorded)
			}
			want := `Bearer error="insufficient_scope", scope="` + test.scopes + `", resource_metadata="http://gw.example/.well-known/oauth-protected-resource` + test.path + `", error_description=`
			if w.Code != http.StatusForbidden || !strings.HasPrefix(header, want) || served != before {
				t.Errorf("%s %s %s: %d %s\nwant %s; %d served", version, test.token, test.body, w.Code, header, want, served-before)
			}
		}
	}
	// A batch in a batch is not looked into, so it is refused.
	for _, body := range []string{"[[" + call("robot__move") + "]]", "[" + call("robot__look") + ", [" + call("robot__move") + "]]"} {
		for _, version := range []string{"2025-03-26", mcphttp.StatelessVersion} {
			before := served
			if got, _ := refusalWith(f.Handler(), http.MethodPost, "/mcp", version, "Bearer read", body); got != "400" || served != before {
				t.Errorf("%s %s: %s, %d served", version, body, got, served-before)
			}
		}
	}
}

// TestStepUpClient checks that a client is told what it lacks, and that its session goes on.
func TestStepUpClient(t *testing.T) {
	f := newServer(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Tool != "look" {
			t.Errorf("%s was called", call.Tool)
		}
		call.Target.Tool = &ferrule.Tool{}
		return &ferrule.Result{Value: []byte("1")}, nil
	}, ferrule.Tool{Name: "move", Effect: ferrule.Changes}, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
	f.parts.Open = closed
	f.parts.Verify = testTokens{"read": identity.Credential{Who: ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: ferrule.AuthOAuth, Scopes: scopesOf(t, "read")}}}.verify
	web := httptest.NewServer(f.Handler())
	defer web.Close()
	defer web.CloseClientConnections()
	for _, version := range versions {
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&mcp.StreamableClientTransport{Endpoint: web.URL + "/mcp", HTTPClient: &http.Client{Transport: sender("read")}, MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move"}); err == nil || !strings.Contains(err.Error(), "robot__move needs the scope change") {
			t.Errorf("%s: %v", version, err)
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__look"}); err != nil {
			t.Errorf("%s: %v", version, err)
		}
		session.Close()
	}
}

func FuzzToolCalls(f *testing.F) {
	for _, seed := range []string{
		`{"method":"tools/call","params":{"name":"a","arguments":{"b":1}}}`, `[{"method":"tools/call","params":{"name":"a"}},1,null,[]]`, `[`, ``, ` `, `null`, `{"method":"tools/call","params":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, c := range toolCalls(body) {
			if len(c.Name)+len(c.Arguments) > 4*len(body)+4 {
				t.Errorf("%q has %q", body, c)
			}
		}
	})
}

func FuzzBearerToken(f *testing.F) {
	for _, seed := range []string{"", "Bearer a", "bearer  a", "Bearer a b", "Basic a", "Bearer\u00a0a", "Bearer \x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token, refused := bearerToken(&http.Request{Header: http.Header{"Authorization": {header}}})
		if (token == "") != (refused != nil) || len(token) > maxToken || !strings.Contains(header, token) {
			t.Errorf("%q: %q, %+v", header, token, refused)
		}
	})
}
