package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/browser"
	"github.com/ferrulehq/ferrule/internal/testenv/model"
	"github.com/ferrulehq/ferrule/internal/testenv/oidc"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// Real programs log in at a gateway, and a person answers in a real browser.
//
//	program ── BROWSER=… ─▶ visitor ─▶ Chromium ─▶ login, consent ─▶ callback of the program
//	        ── tools/call ─▶ gateway ─▶ simulated board

// ownLogins lets agents in only if a person has logged in for them.
func ownLogins(c *config.Config) {
	c.Agents.OpenLoopback = false
	c.Auth.Server.Enabled = true
	c.Auth.Server.Documents = false // those of real programs are on the web
}

// loginGateway runs a gateway with its own authorization server and a board.
func loginGateway(t *testing.T, change ...func(*config.Config)) (*testGateway, *sim.Board) {
	t.Helper()
	boards := startSim(t, simConfig())
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, append([]func(*config.Config){ownLogins}, change...)...)
	g.online("robot")
	return g, boards.Boards[0]
}

// accesses returns the journal's entries about an event.
func (g *testGateway) accesses(event ferrule.AccessEvent) (all []ferrule.Entry) {
	g.t.Helper()
	err := journal.Read(g.data, func(e ferrule.Entry) error {
		if e.Phase == ferrule.Access && e.Tool == string(event) {
			all = append(all, e)
		}
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return all
}

// switchedBy checks that the journal names who has switched the LED.
func (g *testGateway) switchedBy(prefix string) {
	g.t.Helper()
	all := g.outcomes("robot", "gpio_write")
	if len(all) == 0 || slices.ContainsFunc(all, func(e ferrule.Entry) bool { return !strings.HasPrefix(e.Principal.String(), prefix) }) {
		g.t.Errorf("the journal has %+v, want %s", all, prefix)
	}
}

// visitor is a person with a browser, which programs can open.
type visitor struct {
	*browser.Browser
	t       *testing.T
	g       *testGateway
	name    string
	program string // for BROWSER
	opened  <-chan string
}

// newVisitor starts the browser of a person whom the owner has added.
func newVisitor(t *testing.T, g *testGateway, name, role string) *visitor {
	t.Helper()
	v := &visitor{Browser: browser.Start(t), t: t, g: g, name: name}
	v.program, v.opened = browser.Program(t)
	g.command("people", "add", name, "--role", role)
	return v
}

// link returns the link that the owner gives to the person.
func (v *visitor) link() string {
	v.t.Helper()
	link := strings.TrimSpace(loginLink.FindString(v.g.command("login", "--as", v.name)))
	if link == "" {
		v.t.Fatal("there is no link")
	}
	return link
}

// address waits for the address that a program opens.
func (v *visitor) address(ctx context.Context) string {
	v.t.Helper()
	select {
	case address := <-v.opened:
		return address
	case <-ctx.Done():
		v.t.Fatalf("the program opens no page: %v", context.Cause(ctx))
		return ""
	}
}

// visit opens an address, logs in if it has to, and returns the consent page.
func (v *visitor) visit(address string) browser.Page {
	v.t.Helper()
	v.Open(address)
	page := v.Next()
	if strings.Contains(page.Text, "ferrule login") && !isConsent(page) {
		v.Open(v.link())
		v.Next()
		v.Press("Log in as " + v.name)
		page = v.Next() // it leads back to where the person came from
	}
	if !isConsent(page) {
		v.t.Fatalf("no consent page: %+v", page)
	}
	return page
}

func isConsent(p browser.Page) bool { return strings.Contains(p.Text, "asks for access") }

// answer presses a button of the consent page, and returns the page of the program.
func (v *visitor) answer(button string) browser.Page {
	v.t.Helper()
	v.Press(button)
	return v.Wait("the page of the program", func(p browser.Page) bool { return !strings.HasPrefix(p.URL, v.g.url("")) })
}

// client is an installed agent program with a home of its own.
type client struct {
	agentProgram
	t    *testing.T
	path string
	home string
	env  []string
}

// needsLogin returns the path of an installed agent program, or skips the test if the program
// or a browser is missing. Tests call it before they start anything.
func needsLogin(t *testing.T, name string) (path string) {
	t.Helper()
	browser.Need(t)
	dir := os.Getenv("FERRULE_TEST_AGENTS")
	if dir == "" {
		t.Skip("FERRULE_TEST_AGENTS is not set: see internal/testenv/agents")
	}
	path = filepath.Join(dir, "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

// newClient returns an agent program that uses a browser and a model.
func newClient(t *testing.T, name string, m *model.Model, browser string, env ...string) *client {
	t.Helper()
	path := needsLogin(t, name)
	at := slices.IndexFunc(programs, func(p agentProgram) bool { return p.name == name })
	env = append(append(env, outward(m.URL())...), "BROWSER="+browser)
	return &client{programs[at], t, path, t.TempDir(), env}
}

// begin starts the program.
func (c *client) begin(args ...string) (*running, context.Context) {
	c.t.Helper()
	return c.beginAs(c.path, args...)
}

func (c *client) beginAs(path string, args ...string) (*running, context.Context) {
	c.t.Helper()
	run := c.start(c.t, path, c.home, c.env, args)
	ctx, cancel := context.WithTimeout(run.ended, browser.Limit)
	c.t.Cleanup(cancel)
	return run, ctx
}

// run runs the program to its end, and returns its output.
func (c *client) run(args ...string) string {
	c.t.Helper()
	run, ctx := c.begin(args...)
	return run.wait(ctx)
}

// claudeCode returns Claude Code, which knows the gateway as ferrule.
func claudeCode(t *testing.T, m *model.Model, browser, address string) *client {
	t.Helper()
	c := newClient(t, "claude", m, browser)
	_, env := claude(t, "", m.URL(), mcpServer{url: address}, "")
	// It would ask the model before the gateway has answered.
	c.env = append(append(c.env, env...), "MCP_CONNECTION_NONBLOCKING=0", "MCP_CONNECT_TIMEOUT_MS=60000")
	c.run("mcp", "add", "--transport", "http", "ferrule", address)
	return c
}

// login starts the login of Claude Code, which needs a terminal.
func (c *client) login() (*running, context.Context) {
	c.t.Helper()
	return c.beginAs("/usr/bin/script", "-qec", c.path+" mcp login ferrule", "/dev/null")
}

// ask gives Claude Code a prompt. The model answers.
func (c *client) ask() (*running, context.Context) {
	c.t.Helper()
	return c.begin("-p", "Switch the LED.", "--allowedTools", "mcp__ferrule")
}

// credentials returns the tokens that Claude Code has stored.
func (c *client) credentials() (id, access string) {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.home, ".claude", ".credentials.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var stored struct {
		Servers map[string]struct{ ClientID, AccessToken string } `json:"mcpOAuth"`
	}
	if err := json.Unmarshal(data, &stored); err != nil {
		c.t.Fatal(err)
	}
	for _, s := range stored.Servers {
		id, access = s.ClientID, s.AccessToken
	}
	return id, access
}

// TestLoginOfClaude: a person lets Claude Code read, and later change something too. It
// gets a new token when the old one is no longer good, and none after the owner has
// revoked what the person permitted.
func TestLoginOfClaude(t *testing.T) {
	needsLogin(t, "claude")
	g, board := loginGateway(t)
	v := newVisitor(t, g, "anna", "operator")
	m := model.Start(t)
	c := claudeCode(t, m, v.program, g.url("/mcp"))
	if out := c.run("mcp", "list"); !strings.Contains(out, "Needs authentication") {
		t.Errorf("before the login, it says %s", out)
	}
	login := func(scopes map[string]bool) {
		t.Helper()
		run, ctx := c.login()
		v.visit(v.address(ctx))
		for scope, on := range scopes {
			v.Tick("scope", scope, on)
		}
		if page := v.answer("Allow"); page.Status != http.StatusOK {
			t.Errorf("the program shows %+v", page)
		}
		if out := run.wait(ctx); !strings.Contains(out, "Authenticated with") {
			t.Errorf("it says %s", out)
		}
	}
	login(map[string]bool{"change": false, "endanger": false})
	if out := c.run("mcp", "list"); !strings.Contains(out, "Connected") {
		t.Errorf("after the login, it says %s", out)
	}

	// What was not permitted is refused, and the program asks for it.
	run, ctx := c.ask()
	if result := m.Call(ctx, m.Offered(ctx, "robot__gpio_read"), `{"pin":2}`); !strings.Contains(flat(result), `"value":false`) {
		t.Errorf("reading: %s", result)
	}
	result := m.Call(ctx, m.Offered(ctx, "robot__gpio_write"), `{"pin":2,"value":true}`)
	if !strings.Contains(result, "needs additional permissions") || !strings.Contains(result, "change") || board.Level(sim.PinLED) != 0 {
		t.Errorf("changing: %s, and the LED is at %d", result, board.Level(sim.PinLED))
	}
	m.Say(ctx, "I may not switch it.")
	run.wait(ctx)
	login(nil)

	// A token that is no longer good is replaced without a person.
	id, access := c.credentials()
	resp, err := http.PostForm(g.url("/oauth/revoke"), url.Values{"token": {access}, "client_id": {id}})
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", resp, err)
	}
	resp.Body.Close()
	if out := c.run("mcp", "list"); !strings.Contains(out, "Connected") {
		t.Errorf("with an old token, it says %s", out)
	}
	if _, now := c.credentials(); now == access {
		t.Error("it has the same token")
	}
	run, ctx = c.ask()
	result = m.Call(ctx, m.Offered(ctx, "robot__gpio_write"), `{"pin":2,"value":true}`)
	if !strings.Contains(flat(result), `"value":true`) || board.Level(sim.PinLED) != 1 {
		t.Errorf("changing: %s, and the LED is at %d", result, board.Level(sim.PinLED))
	}
	m.Say(ctx, "It is on.")
	run.wait(ctx)
	g.switchedBy("agent:oauth:anna/")
	if all := g.accesses(ferrule.AccessConsent); len(all) != 2 {
		t.Errorf("the journal has %+v", all)
	}

	g.command("people", "remove", "anna")
	if out := c.run("mcp", "list"); !strings.Contains(out, "Needs authentication") {
		t.Errorf("without the person, it says %s", out)
	}
}

// TestLoginOfCodex: a person lets Codex in, which logs in when the gateway is added.
func TestLoginOfCodex(t *testing.T) {
	needsLogin(t, "codex")
	g, board := loginGateway(t)
	v := newVisitor(t, g, "anna", "operator")
	m := model.Start(t)
	c := newClient(t, "codex", m, v.program)
	args, env := codex(t, c.home, m.URL(), mcpServer{url: "http://127.0.0.1:1/"}, "Switch the LED.")
	c.env = append(c.env, env...)
	c.run("mcp", "remove", "ferrule")
	run, ctx := c.begin("mcp", "add", "ferrule", "--url", g.url("/mcp"))
	v.visit(v.address(ctx))
	v.answer("Allow")
	if out := run.wait(ctx); !strings.Contains(out, "Successfully logged in") {
		t.Errorf("it says %s", out)
	}
	run, ctx = c.begin(args...)
	result := m.Call(ctx, m.Offered(ctx, "robot__gpio_write"), `{"pin":2,"value":true}`)
	if !strings.Contains(flat(result), `"value":true`) || board.Level(sim.PinLED) != 1 {
		t.Errorf("changing: %s, and the LED is at %d", result, board.Level(sim.PinLED))
	}
	m.Say(ctx, "It is on.")
	run.wait(ctx)
	g.switchedBy("agent:oauth:anna/")
}

// TestLoginOfInspector: a person lets the official inspector in. It stores its token.
func TestLoginOfInspector(t *testing.T) {
	browser.Need(t)
	dir := mcpTools(t)
	g, board := loginGateway(t)
	v := newVisitor(t, g, "anna", "operator")
	home := t.TempDir()
	inspector, callback := agentProgram{name: "the inspector"}, fmt.Sprintf("http://127.0.0.1:%d/oauth/callback", freePort(t))
	begin := func(args ...string) (*running, context.Context) {
		t.Helper()
		cmd := node(dir, inspectorScript, append([]string{"--cli", g.url("/mcp"), "--callback-url", callback, "--format", "json"}, args...)...)
		env := []string{"BROWSER=" + v.program, "MCP_AUTO_OPEN_ENABLED=true", "MCP_STORAGE_DIR=" + home, "MCP_INSPECTOR_SECRET_STORE=file"}
		run := inspector.start(t, cmd.Path, home, env, cmd.Args[1:])
		ctx, cancel := context.WithTimeout(run.ended, browser.Limit)
		t.Cleanup(cancel)
		return run, ctx
	}
	run, ctx := begin("--method", "tools/list")
	v.visit(v.address(ctx))
	v.answer("Allow")
	if out := run.wait(ctx); !strings.Contains(out, `"robot__gpio_write"`) {
		t.Errorf("it lists %s", out)
	}
	run, ctx = begin("--stored-auth-only", "--method", "tools/call", "--tool-name", "robot__gpio_write", "--tool-args-json", `{"pin":2,"value":true}`)
	if out := run.wait(ctx); !strings.Contains(flat(out), `"value":true`) || board.Level(sim.PinLED) != 1 {
		t.Errorf("it says %s, and the LED is at %d", out, board.Level(sim.PinLED))
	}
	g.switchedBy("agent:oauth:anna/")
}

// TestConformanceOfLogins runs the official suite against the authorization server, with a
// client that registers itself.
func TestConformanceOfLogins(t *testing.T) {
	browser.Need(t)
	dir := mcpTools(t)
	g, _ := loginGateway(t, func(c *config.Config) { c.Auth.Server.Documents = true })
	v := newVisitor(t, g, "anna", "operator")
	port := freePort(t)
	id := register(t, g, fmt.Sprintf("http://127.0.0.1:%d/callback", port))
	results := t.TempDir()
	cmd := node(dir, suite, "authorization", "--url", g.url(""), "--client-id", id, "--resource", g.url("/mcp"), "-p", fmt.Sprint(port), "-o", results)
	said := filepath.Join(t.TempDir(), "said")
	run := agentProgram{name: "the suite"}.start(t, "/bin/sh", results, nil, append([]string{"-c", `exec "$@" >` + said, "sh"}, cmd.Args...))
	ctx, cancel := context.WithTimeout(run.ended, browser.Limit)
	defer cancel()
	var address string
	wait.Within(t, browser.Limit, "the suite asks for a login", func() bool {
		address = regexp.MustCompile(regexp.QuoteMeta(g.url("/")) + `\S*code_challenge\S*`).FindString(readFile(t, said))
		return address != ""
	})
	v.visit(address)
	v.answer("Allow")
	run.wait(ctx)
	scenarios, checks := countChecks(t, results)
	t.Logf("%d scenarios, %v", scenarios, checks)
	if scenarios != 2 || checks["SUCCESS"] != 3 || len(checks) != 1 {
		t.Errorf("%d scenarios, %v\n%s", scenarios, checks, readFile(t, said))
	}
}

// readFile returns what is in a file so far.
func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// register registers a program, and returns its ID.
func register(t *testing.T, g *testGateway, redirect string) (id string) {
	t.Helper()
	body := fmt.Sprintf(`{"client_name":"Test program","redirect_uris":[%q],"token_endpoint_auth_method":"none"}`, redirect)
	resp, err := http.Post(g.url("/oauth/register"), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var registered struct {
		ID string `json:"client_id"`
	}
	data, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(data, &registered)
	}
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %v %s", resp.Status, err, data)
	}
	return registered.ID
}

// TestLoginAtProvider: Claude Code gets its token from an OpenID provider, with which it
// registers itself, and uses it at the gateway.
func TestLoginAtProvider(t *testing.T) {
	needsLogin(t, "claude")
	issuer := oidc.Start(t)
	g, board := loginGateway(t, func(c *config.Config) {
		c.Auth.Server.Enabled = false
		c.Auth.Issuers = []config.Issuer{{Name: "company", URL: issuer}}
	})
	b := browser.Start(t)
	program, opened := browser.Program(t)
	m := model.Start(t)
	c := claudeCode(t, m, program, g.url("/mcp"))
	run, ctx := c.login()
	v := &visitor{Browser: b, t: t, g: g, opened: opened}
	b.Open(v.address(ctx))
	b.Wait("the login page", func(p browser.Page) bool { return strings.Contains(p.Text, "Sign-in") })
	b.Fill("login", "maria")
	b.Fill("password", "any")
	b.Press("Sign-in")
	b.Wait("the consent page", func(p browser.Page) bool { return strings.Contains(p.Text, "Continue") })
	b.Press("Continue")
	b.Wait("the page of the program", func(p browser.Page) bool { return !strings.HasPrefix(p.URL, issuer) })
	if out := run.wait(ctx); !strings.Contains(out, "Authenticated with") {
		t.Errorf("it says %s", out)
	}
	run, ctx = c.ask()
	result := m.Call(ctx, m.Offered(ctx, "robot__gpio_write"), `{"pin":2,"value":true}`)
	if !strings.Contains(flat(result), `"value":true`) || board.Level(sim.PinLED) != 1 {
		t.Errorf("changing: %s, and the LED is at %d", result, board.Level(sim.PinLED))
	}
	m.Say(ctx, "It is on.")
	run.wait(ctx)
	g.switchedBy("agent:company:maria")
}

// TestConsentPage: the page says what a program asks for. What is taken away is not
// granted, and neither is anything after Deny.
func TestConsentPage(t *testing.T) {
	browser.Need(t)
	boards := startSim(t, sim.Config{Count: 2})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0], "lamp": boards.Addrs()[1]}, ownLogins)
	g.online("robot")
	g.online("lamp")
	v := newVisitor(t, g, "anna", "operator")
	client := newLoginClient(t, g)

	page := v.visit(client.address("read change endanger admin"))
	for _, want := range []string{"Test program", client.host, "anna", "robot", "lamp", "endanger"} {
		if !strings.Contains(page.Text, want) {
			t.Errorf("the page does not name %s: %s", want, page.Text)
		}
	}
	if strings.Contains(page.Text, "admin") {
		t.Errorf("an operator is asked for what only an owner may grant: %s", page.Text)
	}
	v.answer("Deny")
	if got := <-client.answers; got.Get("error") != "access_denied" || got.Get("code") != "" || got.Get("state") != client.state || got.Get("iss") != g.url("") {
		t.Errorf("after Deny, the program gets %v", got)
	}

	v.visit(client.address("read change endanger")) // the person is still logged in
	v.Tick("scope", "endanger", false)
	v.Tick("scope", "change", false)
	v.Tick("devices", "some", true)
	v.Tick("device", "lamp", true)
	v.answer("Allow")
	tokens := client.exchange((<-client.answers).Get("code"))
	if tokens.Scope != "read" {
		t.Errorf("granted %q, want read", tokens.Scope)
	}
	agent := newRawAgent(t, g.url("/mcp"), modern, tokens.Access)
	call := func(tool, args string) (int, string) {
		resp, body := agent.ask("tools/call", map[string]any{"name": tool, "arguments": json.RawMessage(args)})
		return resp.StatusCode, string(body)
	}
	if code, body := call("lamp__gpio_read", `{"pin":2}`); code != http.StatusOK || !strings.Contains(flat(body), `"value":false`) {
		t.Errorf("reading: %d %s", code, body)
	}
	if code, body := call("lamp__gpio_write", `{"pin":2,"value":true}`); code != http.StatusForbidden || boards.Boards[1].Level(sim.PinLED) != 0 {
		t.Errorf("changing: %d %s", code, body)
	}
	if code, body := call("robot__gpio_read", `{"pin":2}`); code == http.StatusOK && strings.Contains(flat(body), `"value"`) {
		t.Errorf("another device: %d %s", code, body)
	}

	// Nothing is granted without a choice.
	v.visit(client.address("read"))
	v.Tick("scope", "read", false)
	v.Press("Allow")
	if page := v.Next(); !strings.Contains(page.Text, "Choose at least one") {
		t.Errorf("got %+v", page)
	}

	// What a person has granted ends with the person's role.
	g.command("people", "role", "anna", "viewer")
	if code, body := call("lamp__gpio_read", `{"pin":2}`); code != http.StatusUnauthorized {
		t.Errorf("after a change of the role: %d %s", code, body)
	}
}

// loginClient is a program that logs in. Its answers are what the browser brings back.
type loginClient struct {
	t        *testing.T
	g        *testGateway
	id       string
	redirect string
	host     string
	state    string
	answers  chan url.Values
}

// newLoginClient registers a program that listens for its answers until the test ends.
func newLoginClient(t *testing.T, g *testGateway) *loginClient {
	t.Helper()
	c := &loginClient{t: t, g: g, state: "a state", answers: make(chan url.Values, 16)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/callback" {
			c.answers <- r.URL.Query()
		}
		fmt.Fprint(w, "You can close this page.")
	})}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	c.host = ln.Addr().String()
	c.redirect = "http://" + c.host + "/callback"
	c.id = register(t, g, c.redirect)
	return c
}

// The verifier of all logins, and its challenge, from RFC 7636.
const (
	pkceVerifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	pkceChallenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

// address returns the page on which a person grants scopes.
func (c *loginClient) address(scopes string) string {
	return c.g.url("/oauth/authorize?") + url.Values{
		"response_type": {"code"}, "client_id": {c.id}, "redirect_uri": {c.redirect}, "state": {c.state}, "scope": {scopes},
		"code_challenge": {pkceChallenge}, "code_challenge_method": {"S256"}, "resource": {c.g.url("/mcp")},
	}.Encode()
}

type loginTokens struct {
	Access string `json:"access_token"`
	Scope  string `json:"scope"`
}

// exchange returns the tokens for a code.
func (c *loginClient) exchange(code string) (tokens loginTokens) {
	c.t.Helper()
	resp, err := http.PostForm(c.g.url("/oauth/token"), url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {c.redirect}, "client_id": {c.id}, "code_verifier": {pkceVerifier}, "resource": {c.g.url("/mcp")},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body.Bytes(), &tokens) != nil {
		c.t.Fatalf("%s: %v %s", resp.Status, err, &body)
	}
	return tokens
}

// TestLoginLink: a link logs one browser in, once. The person stays logged in until the
// logout, also in the eyes of the page for approvals.
func TestLoginLink(t *testing.T) {
	browser.Need(t)
	g, _ := loginGateway(t)
	v := newVisitor(t, g, "anna", "operator")
	link := v.link()
	v.Open(link)
	if page := v.Next(); !strings.Contains(page.Text, "anna") || !strings.Contains(page.Text, "operator") {
		t.Errorf("the link shows %+v", page)
	}
	v.Press("Log in as anna")
	if page := v.Next(); !strings.HasPrefix(page.Title, "Devices") || !strings.Contains(page.Text, "Stop") {
		t.Errorf("after the login: %+v", page)
	}
	other := browser.Start(t)
	other.Open(link)
	if page := other.Next(); page.Status != http.StatusNotFound || strings.Contains(page.Text, "Log in as") {
		t.Errorf("a second use of the link: %+v", page)
	}
	v.Open(g.url("/approvals"))
	if page := v.Next(); page.Status != http.StatusOK || strings.Contains(page.Text, "ferrule login") {
		t.Errorf("approvals: %+v", page)
	}
	other.Open(g.url("/approvals"))
	if page := other.Next(); !strings.Contains(page.Text, "ferrule login") {
		t.Errorf("approvals without a login: %+v", page)
	}
	v.Open(g.url("/login"))
	v.Next()
	v.Press("Log out")
	if page := v.Next(); !strings.Contains(page.Text, "You are logged out") {
		t.Errorf("after the logout: %+v", page)
	}
	v.Open(g.url("/login"))
	if page := v.Next(); strings.Contains(page.Text, "anna") {
		t.Errorf("after the logout: %+v", page)
	}
}
