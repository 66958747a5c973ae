package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/sim"
)

// consoleRoute is a page or a stream of the console.
type consoleRoute struct{ method, path string }

// consoleRoutes returns all routes of the console, with a device in their paths.
func (g *testGateway) consoleRoutes() (all []consoleRoute) {
	g.t.Helper()
	for _, pattern := range g.Console.Routes() {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			g.t.Errorf("the route %s takes all methods", pattern)
		}
		path = strings.TrimSuffix(path, "{$}")
		path = regexp.MustCompile(`\{(device|id)\}`).ReplaceAllString(path, "robot")
		path = regexp.MustCompile(`\{[^}]+\}`).ReplaceAllString(path, "gpio_read")
		all = append(all, consoleRoute{method, path})
	}
	if len(all) == 0 {
		g.t.Fatal("the console has no routes")
	}
	return all
}

// newPerson returns a browser of somebody who has not logged in.
func (g *testGateway) newPerson() *person {
	g.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return &person{g.t, http.Client{Jar: jar}, g.url("")}
}

// answer is an answer of the console.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request, with headers in pairs. It does not follow redirects, and reads the
// first bytes of a stream only.
func (p *person) send(method, path, body string, header ...string) answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.at+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := p.http
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return answer{resp.StatusCode, resp.Header, ""}
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// csrf returns the CSRF token of the person's session.
func (p *person) csrf() string {
	p.t.Helper()
	page := p.send(http.MethodGet, "/approvals", "")
	found := regexp.MustCompile(`name="csrf" (?:content|value)="([^"]+)"`).FindStringSubmatch(page.body)
	if found == nil {
		p.t.Fatalf("no token: %d %s", page.status, page.body)
	}
	return found[1]
}

// changesByPeople returns how many calls and changes of access the journal has of people.
func (g *testGateway) changesByPeople() (n int) {
	g.t.Helper()
	// What was recorded before a record that is on disk is on disk, too.
	if err := g.Journal.Append(ferrule.Entry{Phase: ferrule.Outcome, Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "test"}}, true); err != nil {
		g.t.Fatal(err)
	}
	if err := journal.Read(g.data, func(e ferrule.Entry) error {
		if e.Principal.Role == ferrule.Person {
			n++
		}
		return nil
	}); err != nil {
		g.t.Fatal(err)
	}
	return n
}

// consoleGateway is a gateway with a robot, and people of all roles.
func consoleGateway(t *testing.T) (g *testGateway, byRole map[string]*person) {
	t.Helper()
	boards := startSim(t, sim.Config{})
	g = startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured)
	g.online("robot")
	g.command("people", "add", "olga", "--role", "operator")
	g.command("people", "add", "vic")
	return g, map[string]*person{"owner": g.login(), "operator": g.login("--as", "olga"), "viewer": g.login("--as", "vic")}
}

// TestConsoleHeaders checks the headers of all pages and streams, of errors, of files and of
// cookies.
func TestConsoleHeaders(t *testing.T) {
	g, people := consoleGateway(t)
	owner, nobody := people["owner"], g.newPerson()
	secure := map[string]string{
		"Content-Security-Policy":      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "same-origin",
		"Cache-Control":                "no-store",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	}
	check := func(what string, a answer) {
		t.Helper()
		for name, want := range secure {
			if got := a.header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s (%d): %s is %q", what, a.status, name, got)
			}
		}
		if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: other sites may read it", what)
		}
	}
	files := make(map[string]bool)
	for _, r := range g.consoleRoutes() {
		if r.method != http.MethodGet {
			continue
		}
		got := owner.send(http.MethodGet, r.path, "")
		check(r.path, got)
		if got.status >= 500 {
			t.Errorf("%s: %d %s", r.path, got.status, got.body)
		}
		for _, m := range regexp.MustCompile(`(?:src|href)="(/static/[^"]+)"`).FindAllStringSubmatch(got.body, -1) {
			files[m[1]] = true
		}
		if regexp.MustCompile(`(?i)<[^>]+\s(style|on[a-z]+)=|<style|<script(?: defer)?>|javascript:`).MatchString(got.body) {
			t.Errorf("%s has inline script or style: %s", r.path, regexp.MustCompile(`(?i)<[^>]+\s(style|on[a-z]+)=[^>]*>|<style[^>]*>|<script(?: defer)?>|javascript:`).FindString(got.body))
		}
		// Without a session, a page leads to the login, and a stream ends.
		got = nobody.send(http.MethodGet, r.path, "")
		check("nobody at "+r.path, got)
		if to := got.header.Get("Location"); got.status != http.StatusUnauthorized && (got.status != http.StatusSeeOther || to != "/login?return="+url.QueryEscape(r.path)) {
			t.Errorf("nobody at %s: %d to %s", r.path, got.status, to)
		}
	}
	check("nothing", owner.send(http.MethodGet, "/devices/no/such/page/at/all", ""))
	check("the API", owner.send(http.MethodGet, "/api/v1/approvals", ""))
	check("the API for nobody", nobody.send(http.MethodGet, "/api/v1/approvals", ""))
	if len(files) < 3 {
		t.Errorf("pages use the files %v", files)
	}
	for file := range files {
		got := nobody.send(http.MethodGet, file, "")
		if cache := got.header.Get("Cache-Control"); got.status != http.StatusOK || cache != "public, max-age=31536000, immutable" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", file, got.status, got.header)
		}
	}
	if got := nobody.send(http.MethodGet, "/static/000000000000/console.js", ""); got.status != http.StatusNotFound || strings.Contains(got.header.Get("Cache-Control"), "immutable") {
		t.Errorf("another version: %d %v", got.status, got.header)
	}
	checkCookies(t, g)
}

// checkCookies checks the flags of cookies that a login sets.
func checkCookies(t *testing.T, g *testGateway) {
	t.Helper()
	p := g.newPerson()
	path := strings.TrimPrefix(strings.TrimSpace(loginLink.FindString(g.command("login"))), p.at)
	page := p.send(http.MethodGet, path, "")
	done := p.send(http.MethodPost, path, url.Values{"csrf": {csrfIn(page.body)}}.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Origin", p.at)
	set := append(page.header.Values("Set-Cookie"), done.header.Values("Set-Cookie")...)
	if len(set) < 2 {
		t.Fatalf("got the cookies %q", set)
	}
	for _, text := range set {
		c, err := http.ParseSetCookie(text)
		if err != nil || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestConsoleCSRF sends every form of the console without a token, with a wrong one, and
// from another site. Nothing is changed, and nothing is called.
func TestConsoleCSRF(t *testing.T) {
	g, people := consoleGateway(t)
	owner := people["owner"]
	token := owner.csrf()
	const form = "application/x-www-form-urlencoded"
	before, tried := g.changesByPeople(), 0
	for _, r := range g.consoleRoutes() {
		if r.method == http.MethodGet {
			continue
		}
		tried++
		for what, c := range map[string]struct {
			body   string
			header []string
		}{
			"no token":          {"", nil},
			"a form":            {"id=robot&answer=allow", []string{"Content-Type", form}},
			"a wrong token":     {"csrf=wrong", []string{"Content-Type", form}},
			"a wrong header":    {"csrf=" + token, []string{"Content-Type", form, "X-CSRF-Token", "wrong"}},
			"a token in a URL":  {"", []string{"Content-Type", form, "Referer", owner.at + "/?csrf=" + token}},
			"plain text":        {"csrf=" + token, []string{"Content-Type", "text/plain"}},
			"another site":      {"csrf=" + token, []string{"Content-Type", form, "Sec-Fetch-Site", "cross-site"}},
			"another origin":    {"csrf=" + token, []string{"Content-Type", form, "Origin", "https://evil.example.com"}},
			"another subdomain": {"csrf=" + token, []string{"Content-Type", form, "Sec-Fetch-Site", "same-site"}},
		} {
			if got := owner.send(r.method, r.path, c.body, c.header...); got.status != http.StatusForbidden {
				t.Errorf("%s %s with %s: %d %s", r.method, r.path, what, got.status, got.body)
			}
		}
		if got := g.newPerson().send(r.method, r.path, "csrf="+token, "Content-Type", form); got.status != http.StatusUnauthorized {
			t.Errorf("%s %s by nobody: %d", r.method, r.path, got.status)
		}
		if got := people["operator"].send(r.method, r.path, "csrf="+token, "Content-Type", form); got.status != http.StatusForbidden {
			t.Errorf("%s %s with a token of somebody else: %d", r.method, r.path, got.status)
		}
	}
	for _, o := range g.operations(owner) {
		if o.method == http.MethodGet {
			continue
		}
		tried++
		for what, header := range map[string][]string{
			"no token":     {"Content-Type", "application/json"},
			"a wrong one":  {"Content-Type", "application/json", "X-CSRF-Token", "wrong"},
			"another site": {"Content-Type", "application/json", "X-CSRF-Token", token, "Origin", "https://evil.example.com"},
			"a plain form": {"Content-Type", form},
		} {
			if got := owner.send(o.method, o.path, "{}", header...); got.status != http.StatusForbidden {
				t.Errorf("%s %s with %s: %d %s", o.method, o.path, what, got.status, got.body)
			}
		}
	}
	if n := g.changesByPeople() - before; n != 0 || tried < 2 {
		t.Errorf("%d entries of people in the journal after %d forms", n, tried)
	}
}

// apiOperation is an operation, as the API describes itself.
type apiOperation struct{ method, path, scope string }

// operations returns the operations that the gateway describes, with a device in their
// paths.
func (g *testGateway) operations(as *person) (all []apiOperation) {
	g.t.Helper()
	got := as.send(http.MethodGet, "/api/v1/openapi.json", "")
	var d struct {
		Paths map[string]map[string]struct{ Description string }
	}
	if err := json.Unmarshal([]byte(got.body), &d); err != nil || got.status != http.StatusOK {
		g.t.Fatalf("%v: %d %s", err, got.status, got.body)
	}
	for path, methods := range d.Paths {
		for method, o := range methods {
			var scope string
			if _, err := fmt.Sscanf(o.Description, "Needs the scope %s", &scope); err != nil {
				g.t.Errorf("%s %s: %s", method, path, o.Description)
			}
			path := regexp.MustCompile(`\{[^}]+\}`).ReplaceAllString(path, "robot")
			all = append(all, apiOperation{strings.ToUpper(method), path, strings.TrimSuffix(scope, ".")})
		}
	}
	if len(all) == 0 {
		g.t.Fatal("no operations")
	}
	return all
}

// TestConsoleRoles asks for all operations of the API as each role, and as nobody, with an
// input that none accepts: a role that may use the operation is told so, others are denied.
func TestConsoleRoles(t *testing.T) {
	g, people := consoleGateway(t)
	has := map[string][]string{"viewer": {"read"}, "operator": {"read", "change", "endanger"}, "owner": ferrule.ScopeNames()}
	operations := g.operations(people["owner"])
	for role, p := range people {
		token := p.csrf()
		for _, o := range operations {
			got := p.try(o, token)
			if want := slices.Contains(has[role], o.scope); want != (got.status == http.StatusBadRequest) || !want && got.status != http.StatusForbidden {
				t.Errorf("%s: %s %s needs %s: %d %s", role, o.method, o.path, o.scope, got.status, got.body)
			}
		}
	}
	for _, o := range operations {
		if got := g.newPerson().try(o, "token"); got.status != http.StatusUnauthorized {
			t.Errorf("nobody: %s %s: %d %s", o.method, o.path, got.status, got.body)
		}
	}
}

// try asks for an operation with an input that it does not take.
func (p *person) try(o apiOperation, token string) answer {
	if o.method == http.MethodGet {
		return p.send(o.method, o.path+"?no_such_parameter=1", "")
	}
	return p.send(o.method, o.path, `{"no_such_member":1}`, "Content-Type", "application/json", "X-CSRF-Token", token)
}
