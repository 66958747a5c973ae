package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// command runs a command with a gateway, and returns what it prints.
func (g *testGateway) command(args ...string) string {
	g.t.Helper()
	var out, failed bytes.Buffer
	if code := run(g.t.Context(), append(args, "--data", g.data), &out, &failed); code != 0 {
		g.t.Fatalf("%q: %d %s", args, code, failed.String())
	}
	return out.String()
}

// person is a browser with cookies, which follows redirects.
type person struct {
	t    testing.TB
	http http.Client
	at   string // the address of the gateway
}

var (
	loginLink = regexp.MustCompile(`^http://\S+/login/link/[A-Z2-7]+\n`)
	csrfToken = regexp.MustCompile(`name="csrf" value="([^"]+)"`)
)

// login logs a person in with the link of a command.
func (g *testGateway) login(args ...string) *person {
	g.t.Helper()
	link := strings.TrimSpace(loginLink.FindString(g.command(append([]string{"login"}, args...)...)))
	jar, err := cookiejar.New(nil)
	if err != nil {
		g.t.Fatal(err)
	}
	p := &person{g.t, http.Client{Jar: jar}, "http://" + g.Addr()}
	path := strings.TrimPrefix(link, p.at)
	code, page := p.open(path, nil)
	if code != http.StatusOK {
		g.t.Fatalf("%d %s", code, page)
	}
	if code, page = p.open(path, url.Values{"csrf": {csrfIn(page)}}); code == http.StatusUnauthorized || !strings.Contains(page, "Skip to content") {
		g.t.Fatalf("%d %s", code, page)
	}
	return p
}

func csrfIn(page string) string {
	if found := csrfToken.FindStringSubmatch(page); found != nil {
		return found[1]
	}
	return ""
}

// open opens a page, or sends a form as a page of the gateway does.
func (p *person) open(path string, form url.Values, header ...string) (int, string) {
	p.t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequest(method, p.at+path, strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", p.at)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.http.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestLoginAndApprove logs people in at the web server of the gateway, with the links of
// `ferrule login`. Those who may approve a call on the page do, until they are removed.
func TestLoginAndApprove(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"))
	g.online("robot")
	for _, c := range [][]string{{"people", "add", "anna", "--role", "operator"}, {"people", "add", "vic"}} {
		g.command(c...)
	}
	anna, vic, owner := g.login("--as", "anna"), g.login("--as", "vic"), g.login()
	if list := g.command("people", "list"); !regexp.MustCompile(`(?m)^anna +operator +1 +\S`).MatchString(list) || !regexp.MustCompile(`(?m)^vic +viewer +1 +`).MatchString(list) || !strings.Contains(list, " owner ") {
		t.Error(list)
	}
	done := make(chan error, 1)
	call := func() {
		_, err := g.call("robot", "pulse", `{"token":"page"}`, 0)
		done <- err
	}
	go call()
	waiting := func() ferrule.Approval {
		t.Helper()
		wait.For(t, "a call waits", func() bool {
			all := g.Approvals.List()
			return len(all) == 1 && all[0].State == ferrule.ApprovalWaiting
		})
		return g.Approvals.List()[0]
	}
	answer := url.Values{"id": {waiting().ID}, "answer": {"allow"}}
	if code, page := vic.open("/approvals", nil); code != http.StatusForbidden || strings.Contains(page, "pulse") {
		t.Errorf("a viewer: %d %s", code, page)
	}
	_, page := vic.open("/login", nil)
	answer.Set("csrf", csrfIn(page))
	if code, page := vic.open("/approvals", answer); code != http.StatusForbidden {
		t.Errorf("a viewer: %d %s", code, page)
	}
	code, page := anna.open("/approvals", nil)
	if code != http.StatusOK || !strings.Contains(page, "agent:test") || !strings.Contains(page, "You answer as anna") {
		t.Errorf("%d %s", code, page)
	}
	answer.Set("csrf", csrfIn(page))
	if code, page := anna.open("/approvals", answer, "Origin", "https://evil.example.com"); code != http.StatusForbidden {
		t.Errorf("another site: %d %s", code, page)
	}
	if n := boards.Boards[0].Runs()["page"]; n != 0 {
		t.Fatalf("%d runs before the answer", n)
	}
	if code, page := anna.open("/approvals", answer); code != http.StatusOK || !strings.Contains(page, "Allowed") {
		t.Errorf("%d %s", code, page)
	}
	if err := <-done; err != nil || boards.Boards[0].Runs()["page"] != 1 {
		t.Error(err, boards.Boards[0].Runs())
	}
	// A removed person cannot answer any longer.
	go call()
	g.command("people", "remove", "anna")
	answer.Set("id", waiting().ID)
	if code, page := anna.open("/approvals", answer); code != http.StatusUnauthorized {
		t.Errorf("removed: %d %s", code, page)
	}
	_, page = owner.open("/approvals", nil)
	answer.Set("csrf", csrfIn(page))
	answer.Set("answer", "deny")
	if code, page := owner.open("/approvals", answer); code != http.StatusOK {
		t.Errorf("%d %s", code, page)
	}
	if err := <-done; err == nil || boards.Boards[0].Runs()["page"] != 1 {
		t.Errorf("%v, runs %v", err, boards.Boards[0].Runs())
	}
	journal := g.command("audit", "--json")
	for _, want := range []string{"allowed once by person:anna", "anna was added as operator", "anna was removed", "logged in with a one-time link as viewer", `"from":"127.0.0.1"`} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal does not have %q", want)
		}
	}
	if strings.Contains(journal, "/login/link") {
		t.Error("a link is in the journal")
	}
}
