package main

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/browser"
)

// desk is the console in the browser of a person who has logged in.
type desk struct {
	*browser.Browser
	t *testing.T
	g *testGateway
}

// newDesk starts a browser, and logs in with the link of `ferrule login`.
func (g *testGateway) newDesk(t *testing.T, args ...string) *desk {
	t.Helper()
	d := &desk{browser.Start(t), t, g}
	d.Show(browser.View{})
	d.logIn(args...)
	return d
}

// logIn logs in.
func (d *desk) logIn(args ...string) {
	d.t.Helper()
	link := strings.TrimSpace(loginLink.FindString(d.g.command(append([]string{"login"}, args...)...)))
	d.Open(link)
	d.Next()
	d.Click("main button, form button", "")
	d.Until("the person is logged in", `!location.pathname.startsWith("/login/link/") && document.readyState === "complete"`)
}

// at opens a page of the console, and checks its status.
func (d *desk) at(path string) browser.Page {
	d.t.Helper()
	d.Open(d.g.url(path))
	page := d.Next()
	if page.Status != http.StatusOK {
		d.t.Errorf("%s: %d %s", path, page.Status, page.Text)
	}
	return page
}

// settled waits until the page, its pictures and its first live update are there.
func (d *desk) settled() {
	d.t.Helper()
	d.Until("the page is live", `document.readyState === "complete" && [...document.images].every(i => i.complete) &&
		(!document.body.dataset.live || document.documentElement.dataset.stream === "open")`)
	d.Eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))`, nil)
}

// clean checks that no script has failed, and that the policy of the pages has forbidden
// nothing.
func (d *desk) clean(what string) {
	d.t.Helper()
	if problems := d.Problems(); len(problems) > 0 {
		d.t.Errorf("%s: %q", what, problems)
	}
}

// sections are the pages in the navigation.
var sections = []string{"/devices", "/approvals", "/activity", "/agents", "/rules", "/system"}

// pages returns the paths of all whole pages for these devices. More are paths whose values only
// the test knows.
func (g *testGateway) pages(devices []string, more ...string) (all []string) {
	g.t.Helper()
	owner := g.login()
	for _, pattern := range g.Console.Routes() {
		path, ok := strings.CutPrefix(pattern, "GET ")
		if !ok || strings.HasPrefix(path, "/live") {
			continue
		}
		for _, device := range devices {
			filled := strings.ReplaceAll(path, "{device}", url.PathEscape(device))
			if strings.Contains(filled, "{") || slices.Contains(all, filled) {
				continue
			}
			// Other answers are parts of pages, and files.
			if got := owner.send(http.MethodGet, filled, ""); got.status == http.StatusOK && strings.Contains(got.body, "</html>") {
				all = append(all, filled)
			}
		}
	}
	for _, section := range sections {
		if !slices.Contains(all, section) {
			g.t.Errorf("there is no page %s", section)
		}
	}
	return append(all, more...)
}

// startToy connects a simulated voice toy that dials in over WebSocket.
func startToy(t *testing.T, g *testGateway) *testToy {
	t.Helper()
	toy := newToy(t, 1, "ws")
	toy.connect(toy.checkIn(g))
	return toy
}

// startBroker runs a simulated home with its own broker, and returns its URL. Something
// changes there by itself at an interval; 0 for never.
func startBroker(t *testing.T, every time.Duration) (address string) {
	t.Helper()
	home := sim.NewHome()
	home.Every = every
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- sim.ServeHome(ctx, home, "127.0.0.1:0", func(url string) error {
			ready <- url
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the home: %v", err)
		}
	})
	select {
	case address = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return address
}
