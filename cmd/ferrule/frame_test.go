package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestStopInBrowser stops everything with the button of a page and with the API, as a person
// of each role. Only an owner resumes, and nothing works from another site.
func TestStopInBrowser(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured)
	g.online("robot")
	g.command("people", "add", "vic")
	g.command("people", "add", "otto", "--role", "operator")
	vic, otto, owner := g.login("--as", "vic"), g.login("--as", "otto"), g.login()
	change := func() error {
		_, err := g.call("robot", "gpio_write", `{"pin":2,"value":true}`, 0)
		return err
	}
	_, page := vic.open("/approvals", nil) // he may not look at it, but stop
	button := url.Values{"csrf": {csrfIn(page)}}
	for name, header := range map[string][]string{"another site": {"Origin", "https://evil.example.com"}, "no token": nil} {
		form := button
		if header == nil {
			form = url.Values{}
		}
		if code, page := vic.open("/stop", form, header...); code != http.StatusForbidden || g.Stop.Stopped().Everything() {
			t.Errorf("%s: %d %s", name, code, page)
		}
	}
	if err := change(); err != nil {
		t.Fatal(err)
	}
	vic.open("/stop", button)
	if !g.Stop.Stopped().Everything() || ferrule.AsError(change()).Code != ferrule.Denied {
		t.Fatalf("a viewer pressed Stop, and %v is stopped", g.Stop.Stopped())
	}
	_, page = otto.open("/approvals", nil)
	for _, want := range []string{"Stopped. No change is sent to any device.", "Pressed by vic at", "Confirmed"} {
		if !strings.Contains(page, want) {
			t.Errorf("the banner has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, `href="/resume"`) {
		t.Error("an operator is shown Resume")
	}
	if code, page := otto.open("/resume", url.Values{"csrf": {csrfIn(page)}}); code != http.StatusForbidden || !g.Stop.Stopped().Everything() {
		t.Errorf("an operator resumed: %d %s", code, page)
	}
	code, page := owner.open("/resume", nil)
	if code != http.StatusOK || !strings.Contains(page, "Let devices move again?") {
		t.Errorf("%d %s", code, page)
	}
	owner.open("/resume", url.Values{"csrf": {csrfIn(page)}})
	if err := change(); g.Stop.Stopped().Everything() || err != nil {
		t.Fatalf("the owner resumed: %v", err)
	}
	_, text := otto.open("/api/v1/session", nil)
	var session api.SessionInfo
	if err := json.Unmarshal([]byte(text), &session); err != nil || session.Name != "otto" || session.Role != "operator" || session.CSRF == "" {
		t.Errorf("%v: %s", err, text)
	}
	if code, text := otto.open("/api/v1/stop", url.Values{}, "Content-Type", "application/json", "X-CSRF-Token", session.CSRF); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	var state api.StopState
	if _, text = vic.open("/api/v1/stop", nil); json.Unmarshal([]byte(text), &state) != nil || !state.Everything || state.Report == nil || state.Report.Confirmed != 1 || len(state.Orders) != 1 || state.Orders[0].By != "person:otto" {
		t.Errorf("%s", text)
	}
}

// stream opens live updates of a page. Lines is closed when the gateway ends them.
func (p *person) stream(path string) (lines <-chan string) {
	p.t.Helper()
	resp, err := p.http.Get(p.at + path)
	if err != nil {
		p.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %d", path, resp.StatusCode)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	out := make(chan string, 1024)
	go func() {
		defer close(out)
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			out <- s.Text()
		}
	}()
	return out
}

// expect reads lines until one contains a text. It reports whether there was one.
func expect(t testing.TB, lines <-chan string, text string) bool {
	t.Helper()
	limit := time.After(wait.Ample)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return false
			}
			if strings.Contains(line, text) {
				return true
			}
		case <-limit:
			t.Fatalf("no %q", text)
		}
	}
}

// TestLiveStream checks that an open page counts what waits, shows a stop, and gets nothing
// after its session has ended.
func TestLiveStream(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"))
	g.online("robot")
	g.command("people", "add", "otto", "--role", "operator")
	otto, owner := g.login("--as", "otto"), g.login()
	lines := otto.stream("/live/approvals")
	if !expect(t, lines, "event: hello") || !expect(t, lines, `id=\"nav-approvals\"`) {
		t.Fatal("the stream ended")
	}
	done := make(chan error, 1)
	go func() {
		_, err := g.call("robot", "pulse", `{"token":"live"}`, 0)
		done <- err
	}()
	if !expect(t, lines, ` waiting\u003c/span`) || !expect(t, lines, "wants to run pulse on robot") {
		t.Error("the call that waits is not shown")
	}
	_, page := owner.open("/approvals", nil)
	if !strings.Contains(page, "wants to run pulse on robot") || !strings.Contains(page, `<dt>token</dt><dd>&#34;live&#34;</dd>`) {
		t.Error(page)
	}
	code, page := owner.open("/approvals", url.Values{"csrf": {csrfIn(page)}, "id": {g.Approvals.List()[0].ID}, "answer": {"deny"}})
	if code != http.StatusOK || !strings.Contains(page, "Denied") || <-done == nil {
		t.Errorf("%d %s", code, page)
	}
	g.command("people", "logout", "otto")
	owner.open("/stop", url.Values{"csrf": {csrfIn(page)}}) // something to show
	for line := range lines {
		if strings.Contains(line, "No change is sent") {
			t.Error("a session that ended is told what happens")
		}
	}
	if resp, err := otto.http.Get(otto.at + "/live"); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v %v", resp, err)
	}
}

// TestOpen checks that `ferrule open` starts the browser with a link that logs in, and prints
// the link if it cannot.
func TestOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it starts xdg-open")
	}
	g := startGateway(t, nil, unmeasured)
	bin := t.TempDir()
	seen := filepath.Join(bin, "seen")
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	fake := func(script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fake(`printf %s "$1" > ` + seen)
	if out := g.command("open"); strings.Contains(out, "/login/link/") || !strings.Contains(out, "opens in your browser") {
		t.Error(out)
	}
	link, err := os.ReadFile(seen)
	if err != nil || !strings.HasPrefix(string(link), "http://"+g.Addr()+"/login/link/") {
		t.Errorf("%v: %s", err, link)
	}
	if resp, err := http.Get(string(link)); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v %v", resp, err)
	}
	fake("exit 3")
	for name, args := range map[string][]string{"the browser failed": {"open"}, "print": {"open", "--print"}} {
		if out := g.command(args...); !strings.Contains(out, "/login/link/") {
			t.Errorf("%s: %s", name, out)
		}
	}
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	if out := g.command("open"); !strings.Contains(out, "there is no display") || !strings.Contains(out, "/login/link/") {
		t.Error(out)
	}
}
