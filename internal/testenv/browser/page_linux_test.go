package browser_test

import (
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/browser"
)

// serve serves one page with a policy, and a script.
func serve(t *testing.T, body string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /script.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprint(w, `"use strict"
			window.keys = []
			document.addEventListener("keydown", e => keys.push((e.ctrlKey ? "Ctrl+" : "") + e.key))
			document.cookie = "visited=yes"`)
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Page</title><script src="/script.js"></script><main><h1>Page</h1>%s</main>`, body)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// TestBrowserInput uses a page with keys and the mouse. Keys reach scripts and fields.
func TestBrowserInput(t *testing.T) {
	b := browser.Start(t)
	b.Open(serve(t, `<a href="/">First</a> <label>Name <input name=who></label> <button type=button aria-label="Do it" onclick="1">x</button> <button hidden>Hidden</button>`))
	b.Next()
	b.Keys("Tab")
	if f := b.Focused(); f.Tag != "a" || f.Label != "First" || !f.Shown {
		t.Errorf("got %+v", f)
	}
	if n := b.TabTo("the field", 5, func(f browser.Focused) bool { return f.Name == "who" }); n != 1 {
		t.Errorf("%d times Tab", n)
	}
	b.Type("an")
	b.Keys("n", "a", "Ctrl+.", "Shift+Tab")
	if f := b.Focused(); f.Label != "First" {
		t.Errorf("got %+v", f)
	}
	var value string
	var keys []string
	b.Eval(`document.querySelector("input").value`, &value)
	b.Eval(`Promise.resolve(keys)`, &keys)
	if value != "anna" || !slices.Contains(keys, "Ctrl+.") || !slices.Contains(keys, "n") {
		t.Errorf("got %q and keys %q", value, keys)
	}
	b.Click("button", "Do it")
	if f := b.Focused(); f.Label != "Do it" {
		t.Errorf("got %+v", f)
	}
	if b.Has("button", "Hidden") || !b.Has("label", "") {
		t.Error("what is shown")
	}
	b.Keys("Shift+Tab", "Shift+Tab", "Enter")
	b.Until("the link was followed", `keys.length === 0`)
}

// TestBrowserWatches checks what is noted of a page: forbidden scripts, errors, and bytes.
func TestBrowserWatches(t *testing.T) {
	b := browser.Start(t)
	good := serve(t, "fine")
	b.Open(good)
	b.Next()
	if got := b.Problems(); len(got) != 0 {
		t.Errorf("a good page: %q", got)
	}
	if bytes, requests := b.Loaded(); bytes < 200 || bytes > 4000 || requests < 2 {
		t.Errorf("%d bytes with %d requests", bytes, requests)
	}
	tab, other := b.Tab(), b.Private()
	for _, c := range []struct {
		page *browser.Browser
		want string
	}{{tab, "visited=yes"}, {other, "visited=yes"}} {
		c.page.Show(browser.View{NoScript: c.page == other})
		c.page.Open(good)
		c.page.Next()
		var cookie string
		c.page.Eval(`document.cookie`, &cookie)
		if (cookie == c.want) != (c.page == tab) {
			t.Errorf("cookies: %q", cookie)
		}
	}
	b.Open(serve(t, `<img src=x onerror="window.ran = 1"><script>window.ran = 2</script>`))
	b.Next()
	b.Eval(`setTimeout(() => { throw new Error("uncaught") }, 0); console.error("logged")`, nil)
	b.Until("nothing more comes", `window.ran === undefined`)
	all := strings.Join(b.Problems(), "\n")
	for _, want := range []string{"Content Security Policy", "uncaught", "logged"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %s", want, all)
		}
	}
}

// TestBrowserPictures takes pictures, and finds a barrier with axe-core.
func TestBrowserPictures(t *testing.T) {
	b := browser.Start(t)
	b.Open(serve(t, `<style>html { color-scheme: light dark } p { height: 2000px }</style><p>Long</p><input>`))
	b.Next()
	dir := t.TempDir()
	size := func(name string) (picture string, width, height int) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := png.DecodeConfig(strings.NewReader(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		return string(data), c.Width, c.Height
	}
	for name, view := range map[string]browser.View{"light.png": {}, "again.png": {}, "dark.png": {Dark: true}, "phone.png": {Width: 390}} {
		b.Show(view)
		b.Screenshot(filepath.Join(dir, name))
	}
	light, width, height := size("light.png")
	again, _, _ := size("again.png")
	dark, _, _ := size("dark.png")
	_, phone, _ := size("phone.png")
	if width != 1280 || height < 2000 || light != again || light == dark || phone != 390 {
		t.Errorf("%dx%d, phone %d, equal %t, dark equal %t", width, height, phone, light == again, light == dark)
	}
	if found := b.Axe(); len(found) != 1 || !strings.HasPrefix(found[0], "label (critical)") {
		t.Errorf("got %q", found)
	}
}
