// Package apps shows views of MCP Apps in a real host: the reference bridge and the official
// client, in headless Chromium. README.md draws it.
package apps

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/browser"
)

// policy is the Content Security Policy of a view that asks for nothing.
const policy = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; media-src 'self' data:; connect-src 'none'; frame-src 'self'"

// Host is a chat program that shows one view at a time.
type Host struct {
	*browser.Browser
	t   testing.TB
	url string
}

// Shown is what the host shows.
type Shown struct {
	Tool string
	Args any
	// Path is the address of MCP; empty for /mcp.
	Path string
	// Version is that of MCP.
	Version string
	// Theme is light or dark, and Context is more of what the host says about itself.
	Theme   string
	Context map[string]any
}

// Element is an element of the view.
type Element struct {
	Tag, Text, Label  string
	Disabled, Checked bool
	Color, Background string
}

// probe asks the sandbox about the view.
type probe struct {
	Selector string  `json:"selector"`
	Text     string  `json:"text,omitempty"`
	Click    bool    `json:"click,omitempty"`
	Set      *string `json:"set,omitempty"`
}

// probed is the answer.
type probed struct {
	All     []Element
	Blocked []string
	Error   string
}

// Need returns FERRULE_TEST_APPS, the folder that the script install has filled. It skips the
// test if there is none, or no browser.
func Need(t testing.TB) (dir string) {
	t.Helper()
	dir = os.Getenv("FERRULE_TEST_APPS")
	if dir == "" {
		t.Skip("FERRULE_TEST_APPS is not set: see internal/testenv/apps")
	}
	browser.Need(t)
	return dir
}

// Start starts a host for the gateway at a URL, or skips the test.
func Start(t testing.TB, gateway string) *Host {
	t.Helper()
	dir := Need(t)
	to, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", pass(to))
	mux.Handle("/mcp/", pass(to))
	for path, file := range map[string]string{"GET /{$}": "host.html", "GET /host.js": "host.js", "GET /sandbox.html": "sandbox.html"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if file == "sandbox.html" {
				w.Header().Set("Content-Security-Policy", policy)
			}
			http.ServeFile(w, r, filepath.Join(dir, file))
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &Host{Browser: browser.Start(t), t: t, url: s.URL}
}

// pass passes requests on to the gateway, as if they came from its own origin.
func pass(to *url.URL) http.Handler {
	return &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = to.Host
		r.Out.Header.Del("Origin")
	}}
}

// Open calls a tool and shows its view.
func (h *Host) Open(s Shown) {
	h.t.Helper()
	values := url.Values{"tool": {s.Tool}, "version": {s.Version}, "theme": {s.Theme}, "path": {s.Path}}
	for name, value := range map[string]any{"args": s.Args, "context": s.Context} {
		text, err := json.Marshal(value)
		if err != nil {
			h.t.Fatal(err)
		}
		if value != nil {
			values.Set(name, string(text))
		}
	}
	h.Browser.Open(h.url + "/?" + values.Encode())
	h.Until("the host shows the view", "window.host && (host.ready || host.error)")
	var failed string
	h.Eval("host.error", &failed)
	if failed != "" {
		h.t.Fatal(failed)
	}
}

// Find returns the elements of the view that match a selector and, unless it is empty, have a
// text.
func (h *Host) Find(selector, text string) []Element {
	h.t.Helper()
	return h.probe(probe{Selector: selector, Text: text}).All
}

// Text returns the text of the view.
func (h *Host) Text() string {
	h.t.Helper()
	all := h.Find("body", "")
	if len(all) == 0 {
		return ""
	}
	return all[0].Text
}

// Blocked returns what the policy forbade to the view.
func (h *Host) Blocked() []string {
	h.t.Helper()
	return h.probe(probe{Selector: "body"}).Blocked
}

// PressIn presses an element of the view.
func (h *Host) PressIn(selector, text string) {
	h.t.Helper()
	if all := h.Find(selector, text); len(all) == 0 || all[0].Disabled {
		h.t.Fatalf("cannot press %s %q: %+v in %q", selector, text, all, h.Text())
	}
	h.probe(probe{Selector: selector, Text: text, Click: true})
}

// SetIn sets the value of a field of the view.
func (h *Host) SetIn(selector, value string) {
	h.t.Helper()
	if len(h.Find(selector, "")) == 0 {
		h.t.Fatalf("there is no %s in %q", selector, h.Text())
	}
	h.probe(probe{Selector: selector, Set: &value})
}

// WaitFor waits until a condition holds for the view.
func (h *Host) WaitFor(what string, holds func() bool) {
	h.t.Helper()
	for end := time.Now().Add(browser.Limit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("not within %v: %s; the view shows %q", browser.Limit, what, h.Text())
		}
	}
}

func (h *Host) probe(p probe) (got probed) {
	h.t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		h.t.Fatal(err)
	}
	h.Eval(fmt.Sprintf("host.probe(%s)", text), &got)
	if got.Error != "" {
		h.t.Fatalf("%s: %s", text, got.Error)
	}
	return got
}
