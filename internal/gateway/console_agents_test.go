package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// testRules are rules and their tests. A comment and a name are hostile.
const (
	testRules = `// <script>alert("rule")</script>
@id("door <img src=x onerror=alert(1)>")
forbid (principal is Agent, action == Action::"call", resource == Tool::"door/open")
unless { context.approved };

forbid (principal is Agent, action, resource in Device::"pump");

@id("slow only")
forbid (principal is Agent, action == Action::"call", resource == Tool::"lamp/blink")
when { context.args.seconds > 10 };
`
	testCases = `- {who: claude, device: door, tool: open, effect: changes, expect: ask}
- {who: claude, device: pump, tool: run, effect: changes, expect: forbid}
`
)

// signedIn are the people of a test: each request names its role.
type signedIn struct{}

func (signedIn) Current(r *http.Request) (ferrule.Principal, string, bool) {
	role := ferrule.PersonRole(r.Header.Get("Role"))
	return role.LoggedIn("mira"), "csrf", role.Rank() > 0
}

func (p signedIn) Peek(r *http.Request) (ferrule.Principal, string, bool) { return p.Current(r) }

func (p signedIn) Session(_ http.ResponseWriter, r *http.Request) (ferrule.Principal, string, bool) {
	return p.Current(r)
}

func (signedIn) CSRF(*http.Request) bool { return true }

// site is a running gateway with its console.
type site struct {
	*Gateway
	t   *testing.T
	api *api.API
	web http.Handler
	log *lockedBuffer
	dir string // of rules
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, log: new(lockedBuffer), dir: t.TempDir()}
	for name, text := range map[string]string{"house.cedar": testRules, "house.test.yaml": testCases} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Default()
	cfg.Listen, cfg.Policy.Dir, cfg.Policy.Groups = "127.0.0.1:0", s.dir, map[string][]string{"<i>lab</i>": {"claude"}}
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	s.Gateway, err = New(Parts{Config: cfg, Data: t.TempDir(), Log: log, Version: "test", Load: func() (config.Config, error) { return cfg, nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	input := json.RawMessage(`{"type":"object","properties":{"seconds":{"type":"integer"}}}`)
	for id, tools := range map[string][]ferrule.Tool{
		"door": {{Name: "open", Text: "<script>alert('text')</script>", Effect: ferrule.Changes, Input: input}, {Name: "look", Effect: ferrule.Reads}, {Name: "break", Effect: ferrule.Endangers}},
		"lamp": {{Name: "blink", Effect: ferrule.Changes, Input: input}},
		"pump": {{Name: "run", Effect: ferrule.Changes}},
	} {
		m := &ferrule.Manifest{Model: id, Tools: tools}
		kind, err := m.Kind()
		if err != nil {
			t.Fatal(err)
		}
		d := &ferrule.Device{ID: id, Title: "<b>" + id + "</b>", Kind: kind, Accepted: kind, Model: id, State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted, Node: s.node()}
		s.Fleet.Put(d, m, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return &ferrule.Result{Value: []byte(`{}`)}, nil
		})
	}
	if s.api, err = api.New(api.Parts{
		Handle: s.entry(telemetry.EntryConsole), Find: s.findFor, Devices: s.deviceParts(), Agents: consoleAgents{s.Gateway}, Rules: consoleRules{s.Gateway}, Version: "test", Log: log,
	}); err != nil {
		t.Fatal(err)
	}
	pages := console.New(console.Parts{API: s.api, People: signedIn{}, Fleet: s.Fleet, Streams: s.Cluster, Header: s.pageHeader, Version: "test", Log: log})
	t.Cleanup(pages.Close)
	s.web = pages
	return s
}

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// request sends a request as a person with a role. A body that begins with { is JSON.
func (s *site) request(role ferrule.PersonRole, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.Header.Set("Role", string(role))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if strings.HasPrefix(body, "{") {
			r.Header.Set("Content-Type", "application/json")
		}
	}
	w := httptest.NewRecorder()
	s.web.ServeHTTP(w, r)
	return w
}

// connect connects an agent with a token.
func (s *site) connect(secret, name, version string) *mcp.ClientSession {
	s.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: version}, nil)
	session, err := client.Connect(s.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + s.Addr() + "/mcp", HTTPClient: &http.Client{Transport: bearer(secret)},
	}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { session.Close() })
	return session
}

// bearer adds a token to each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

var owner = ferrule.RoleOwner.LoggedIn("mira")

// TestViewAs: the page "view as" has exactly the tools that the agent lists over MCP.
func TestViewAs(t *testing.T) {
	s := newSite(t)
	for name, in := range map[string]builtin.AddTokenInput{
		"claude": {Scopes: []string{"endanger"}},
		"reader": {Scopes: []string{"read"}},
		"doors":  {Scopes: []string{"change"}, Devices: []string{"d*"}},
	} {
		in.Name = name
		token, err := s.api.AddToken(t.Context(), owner, in)
		if err != nil {
			t.Fatal(err)
		}
		before, err := s.api.ViewAs(t.Context(), owner, api.ViewInput{As: name})
		if err != nil || !before.Known {
			t.Fatalf("%s is unknown before it connects: %v", name, err)
		}
		session := s.connect(token.Secret, name+"-program", "1")
		var listed []string
		for tool, err := range session.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, tool.Name)
		}
		view, err := s.api.ViewAs(t.Context(), owner, api.ViewInput{As: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []api.ViewOutput{before, view} {
			var shown []string
			for _, tool := range v.Tools {
				shown = append(shown, tool.Name)
			}
			if !slices.Equal(shown, listed) || v.Total != len(listed) {
				t.Errorf("%s lists %q, and the page shows %q of %d", name, listed, shown, v.Total)
			}
		}
		if slices.ContainsFunc(listed, func(n string) bool { return strings.HasPrefix(n, "pump") }) {
			t.Errorf("%s sees the pump", name)
		}
		page := s.request(ferrule.RoleViewer, http.MethodGet, "/agents/view?as="+name, "").Body.String()
		for _, tool := range listed {
			if !strings.Contains(page, ">"+tool+"<") {
				t.Errorf("the page of %s lacks %s", name, tool)
			}
		}
	}
	view, err := s.api.ViewAs(t.Context(), owner, api.ViewInput{As: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	verdicts := make(map[string]string)
	for _, tool := range view.Tools {
		verdicts[tool.Name] = tool.Verdict
	}
	for tool, want := range map[string]string{"door__open": "ask", "door__look": "permit", "door__break": "ask", "lamp__blink": api.Depends, "gateway__status": "permit"} {
		if verdicts[tool] != want {
			t.Errorf("%s is %q; want %q", tool, verdicts[tool], want)
		}
	}
	if got := s.request(ferrule.RoleViewer, http.MethodGet, "/agents/view?as=claude&device=pump", "").Code; got != http.StatusNotFound {
		t.Errorf("the pump is shown as claude: %d", got)
	}
}

// TestConnectedAgents: agents appear when they connect and go when they leave. What they say
// about themselves is text.
func TestConnectedAgents(t *testing.T) {
	s := newSite(t)
	token, err := s.api.AddToken(t.Context(), owner, builtin.AddTokenInput{Name: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	list := func() []api.Agent {
		out, err := s.api.Agents(t.Context(), owner, api.AgentsInput{})
		if err != nil {
			t.Fatal(err)
		}
		return out.Agents
	}
	if all := list(); len(all) != 0 {
		t.Fatalf("got %+v", all)
	}
	const hostile = `<script>alert("agent")</script>`
	session := s.connect(token.Secret, hostile, hostile)
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "door__look"}); err != nil {
		t.Fatal(err)
	}
	all := list()
	if len(all) != 1 || all[0].Name != "claude" || all[0].Client.Name != hostile || all[0].Calls != 1 || all[0].Called.IsZero() || all[0].Auth != ferrule.AuthToken || all[0].Preset != "careful" {
		t.Fatalf("got %+v", all)
	}
	page := s.request(ferrule.RoleOwner, http.MethodGet, "/agents", "").Body.String()
	if strings.Contains(page, "<script>alert") || !strings.Contains(page, "&lt;script&gt;alert") {
		t.Error("the name of the program is not shown as text")
	}
	session.Close()
	wait.For(t, "the session to go", func() bool {
		return !slices.ContainsFunc(list(), func(a api.Agent) bool { return a.State == api.AgentConnected })
	})
}

// TestTokenPages: a secret is in one answer only, and nowhere else. Tokens are for owners.
func TestTokenPages(t *testing.T) {
	s := newSite(t)
	form := url.Values{"name": {"lab"}, "scope": {"read"}, "devices": {"door, lamp"}, "expires": {"30d"}, "program": {"codex"}}.Encode()
	for _, role := range []ferrule.PersonRole{ferrule.RoleViewer, ferrule.RoleOperator} {
		for _, path := range []string{"/agents/tokens/new", "/agents/tokens/rotate", "/agents/tokens/revoke"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				if w := s.request(role, method, path+"?name=lab", form); w.Code != http.StatusForbidden {
					t.Errorf("%s as %s: got %d", path, role, w.Code)
				}
			}
		}
	}
	w := s.request(ferrule.RoleOwner, http.MethodPost, "/agents/tokens/new", form)
	page := w.Body.String()
	at := strings.Index(page, "fer_")
	if w.Code != http.StatusOK || at < 0 || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Location") != "" {
		t.Fatalf("got %d, %v: %s", w.Code, w.Header(), page)
	}
	secret, _, _ := strings.Cut(page[at:], "<")
	if strings.Count(page, secret) != 2 { // the secret, and in the configuration of the program
		t.Errorf("the page has the secret %d times", strings.Count(page, secret))
	}
	if out, err := s.api.Tokens(t.Context(), owner, builtin.ListTokensInput{}); err != nil || len(out.Tokens) != 1 || !slices.Equal(out.Tokens[0].Devices, []string{"door", "lamp"}) || !slices.Equal(out.Tokens[0].Scopes, []string{"read"}) || out.Tokens[0].Expires.IsZero() {
		t.Errorf("got %+v, %v", out, err)
	}
	rotated := s.request(ferrule.RoleOwner, http.MethodPost, "/agents/tokens/rotate", "name=lab").Body.String()
	if !strings.Contains(rotated, "fer_") || strings.Contains(rotated, secret) {
		t.Error("rotating does not show another secret")
	}
	after := s.request(ferrule.RoleOwner, http.MethodGet, "/agents", "").Body.String()
	if strings.Contains(after, "fer_") || !strings.Contains(after, ">lab<") {
		t.Error("the list has a secret, or lacks the token")
	}
	if viewer := s.request(ferrule.RoleViewer, http.MethodGet, "/agents", "").Body.String(); strings.Contains(viewer, ">lab<") {
		t.Error("a viewer sees tokens")
	}
	if again := s.request(ferrule.RoleOwner, http.MethodPost, "/agents/tokens/new", form); again.Code == http.StatusOK || !strings.Contains(again.Body.String(), "lab") {
		t.Errorf("a second token of the name: got %d", again.Code)
	}
	if w := s.request(ferrule.RoleOwner, http.MethodPost, "/agents/tokens/revoke", "name=lab"); w.Code != http.StatusSeeOther {
		t.Errorf("revoking: got %d", w.Code)
	}
	s.Pipeline.Flush()
	s.access.drain()
	for _, file := range []string{"journal.log", "tokens"} {
		data, err := os.ReadFile(filepath.Join(s.parts.Data, file))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("fer_")) {
			t.Errorf("%s has a secret", file)
		}
	}
	if strings.Contains(s.log.String(), "fer_") {
		t.Error("the log has a secret")
	}
}

// TestAgentRoles: each operation refuses people without its scope.
func TestAgentRoles(t *testing.T) {
	s := newSite(t)
	explain := `{"who":"claude","device":"door","tool":"open"}`
	for _, c := range []struct {
		method, path, body string
		least              ferrule.PersonRole
	}{
		{http.MethodGet, "/api/v1/agents", "", ferrule.RoleViewer},
		{http.MethodGet, "/api/v1/agents/view?as=claude", "", ferrule.RoleViewer},
		{http.MethodGet, "/api/v1/agents/programs", "", ferrule.RoleViewer},
		{http.MethodGet, "/api/v1/tokens", "", ferrule.RoleOwner},
		{http.MethodPost, "/api/v1/tokens", `{"name":"a"}`, ferrule.RoleOwner},
		{http.MethodPost, "/api/v1/tokens/a/rotate", `{}`, ferrule.RoleOwner},
		{http.MethodPost, "/api/v1/tokens/a/revoke", `{}`, ferrule.RoleOwner},
		{http.MethodGet, "/api/v1/rules", "", ferrule.RoleViewer},
		{http.MethodPost, "/api/v1/rules/explain", explain, ferrule.RoleOwner},
		{http.MethodPost, "/api/v1/rules/test", `{}`, ferrule.RoleOwner},
		{http.MethodPost, "/api/v1/reload", `{}`, ferrule.RoleOwner},
		{http.MethodGet, "/agents", "", ferrule.RoleViewer},
		{http.MethodGet, "/rules", "", ferrule.RoleViewer},
		{http.MethodGet, "/rules/tools?device=door", "", ferrule.RoleOwner},
		{http.MethodPost, "/rules/test", "x=1", ferrule.RoleOwner},
		{http.MethodPost, "/rules/reload", "x=1", ferrule.RoleOwner},
	} {
		for _, role := range []ferrule.PersonRole{ferrule.RoleViewer, ferrule.RoleOperator, ferrule.RoleOwner} {
			want := http.StatusOK
			if role.Rank() < c.least.Rank() {
				want = http.StatusForbidden
			}
			if w := s.request(role, c.method, c.path, c.body); w.Code != want {
				t.Errorf("%s %s as %s: got %d, want %d: %.300s", c.method, c.path, role, w.Code, want, w.Body)
			}
		}
	}
}

// TestWhatIf: the page says what explain_policy says, which `ferrule policy explain` prints.
func TestWhatIf(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct{ device, tool, args, json, verdict string }{
		{"door", "open", "", `{}`, "ask"},
		{"door", "look", "", `{}`, "permit"},
		{"pump", "run", "", `{}`, "forbid"},
		{"lamp", "blink", "seconds=30", `{"seconds":30}`, "forbid"},
		{"lamp", "blink", `{"seconds":3}`, `{"seconds":3}`, "permit"},
	} {
		want, err := callOwn[builtin.ExplainPolicyOutput](t.Context(), s.Gateway, owner, "explain_policy", builtin.ExplainPolicyInput{Who: "claude", Device: c.device, Tool: c.tool, Arguments: builtin.Arguments(c.json)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.api.WhatIf(t.Context(), owner, api.WhatIfInput{Who: "claude", Device: c.device, Tool: c.tool, Arguments: c.args})
		if err != nil || !reflect.DeepEqual(got, want) || got.Verdict != c.verdict {
			t.Errorf("%s %s %s: got %+v, %v; want %+v", c.device, c.tool, c.args, got, err, want)
		}
		query := url.Values{"who": {"claude"}, "device": {c.device}, "tool": {c.tool}, "args": {c.args}}.Encode()
		page := s.request(ferrule.RoleOwner, http.MethodGet, "/rules?"+query, "").Body.String()
		word := map[string]string{"permit": "Permitted", "ask": "Asks a person", "forbid": "Forbidden"}[c.verdict]
		if !strings.Contains(page, ">"+word+"<") {
			t.Errorf("%s %s: the page lacks %q", c.device, c.tool, word)
		}
	}
	for _, wrong := range []string{"seconds", "[1]", "{", `{"seconds":`} {
		if _, err := s.api.WhatIf(t.Context(), owner, api.WhatIfInput{Who: "claude", Device: "lamp", Tool: "blink", Arguments: wrong}); ferrule.AsError(err).Code != ferrule.Invalid {
			t.Errorf("arguments %q: got %v", wrong, err)
		}
	}
}

// TestRulesPage: the page has the rules with their lines, as text, and the directory for an
// owner only. A test run says what is wrong with the files, and changes nothing.
func TestRulesPage(t *testing.T) {
	s := newSite(t)
	page := s.request(ferrule.RoleOwner, http.MethodGet, "/rules?who=claude&device=door&tool=open", "").Body.String()
	for _, want := range []string{"house.cedar", "3 rules", "2 of 2 tests pass", s.dir, `class="l hit" data-n="2"`, `class="l hit" data-n="4"`, "&lt;i&gt;lab"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, script := range []string{"<script>alert", "<img src=x", "<i>lab"} {
		if strings.Contains(page, script) {
			t.Errorf("the page has %s", script)
		}
	}
	viewer := s.request(ferrule.RoleViewer, http.MethodGet, "/rules", "").Body.String() + s.request(ferrule.RoleViewer, http.MethodGet, "/api/v1/rules", "").Body.String()
	if strings.Contains(viewer, s.dir) || !strings.Contains(viewer, "house.cedar") {
		t.Error("a viewer sees the directory, or no rules")
	}
	version := s.Policy.Version()
	draft := filepath.Join(s.dir, "draft.cedar")
	if err := os.WriteFile(draft, []byte("\n\npermit (principal, action, resource) when { resource.lable == \"<b>x\" };\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := s.api.TestRules(t.Context(), owner, api.RulesInput{})
	if err != nil || len(out.Problems) != 1 || out.Problems[0].File != "draft.cedar" || out.Problems[0].Line != 3 || !strings.Contains(out.Problems[0].Text, "lable") {
		t.Errorf("got %+v, %v", out, err)
	}
	for _, path := range []string{"/rules/test", "/rules/reload"} {
		if w := s.request(ferrule.RoleOwner, http.MethodPost, path, "x=1"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "lable") || strings.Contains(w.Body.String(), "<b>x") {
			t.Errorf("%s: got %d: %.300s", path, w.Code, w.Body)
		}
	}
	if s.Policy.Version() != version {
		t.Error("rules with a problem came into force")
	}
	if err := os.Remove(draft); err != nil {
		t.Fatal(err)
	}
	if out, err := s.api.TestRules(t.Context(), owner, api.RulesInput{}); err != nil || len(out.Problems) != 0 || out.Changed || out.Rules != 3 || out.Tests != 2 {
		t.Errorf("got %+v, %v", out, err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "more.cedar"), []byte("forbid (principal is Agent, action, resource in Device::\"gate\");\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if w := s.request(ferrule.RoleOwner, http.MethodPost, "/rules/reload", "x=1"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Reloaded.") || s.Policy.Version() == version {
		t.Errorf("got %d: %.300s", w.Code, w.Body)
	}
}

// crowd is a gateway with many agents.
type crowd struct{ consoleAgents }

func (crowd) Connected() (all []ferrule.ConnectedAgent) {
	for i := range 230 {
		all = append(all, ferrule.ConnectedAgent{Principal: ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprintf("local/a%03d", i)}, Session: true})
	}
	return all
}

// TestAgentsPaged: a page of agents is bounded, and each agent is on one page.
func TestAgentsPaged(t *testing.T) {
	s := newSite(t)
	a, err := api.New(api.Parts{Handle: s.entry(telemetry.EntryConsole), Find: s.findFor, Devices: s.deviceParts(), Agents: crowd{consoleAgents{s.Gateway}}, Rules: consoleRules{s.Gateway}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var in api.AgentsInput
	for range 3 {
		out, err := a.Agents(t.Context(), owner, in)
		if err != nil || len(out.Agents) > 100 || out.Total != 230 {
			t.Fatalf("got %d of %d, %v", len(out.Agents), out.Total, err)
		}
		for _, g := range out.Agents {
			names = append(names, g.Name)
		}
		in.After = out.Next
	}
	if in.After != "" || len(slices.Compact(names)) != 230 || !slices.IsSorted(names) {
		t.Errorf("got %d names, next %q", len(names), in.After)
	}
}
