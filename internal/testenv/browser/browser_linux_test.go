package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/browser"
)

// TestBrowser fills in a form whose answer redirects to another server. The page cannot
// load what is not on loopback.
func TestBrowser(t *testing.T) {
	b := browser.Start(t)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "<title>There</title>It got %s", r.URL.RawQuery)
	}))
	defer other.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; img-src *")
		fmt.Fprint(w, `<title>Here</title><form method=post action=/send>
			<img src="http://other.example/"><input name=who><input type=checkbox name=may value=a checked><input type=checkbox name=may value=b checked>
			<button name=answer value=yes>Yes</button><button>No</button></form>`)
	})
	mux.HandleFunc("POST /send", func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		http.Redirect(w, r, other.URL+"/?"+r.Form.Encode(), http.StatusSeeOther)
	})
	here := httptest.NewServer(mux)
	defer here.Close()

	program, opened := browser.Program(t)
	if out, err := exec.Command(program, here.URL+"/?a=b&c=d e").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.Open(<-opened)
	if p := b.Next(); p.Title != "Here" || p.Status != http.StatusOK || !strings.HasSuffix(p.URL, "/?a=b&c=d%20e") {
		t.Errorf("got %+v", p)
	}
	b.Fill("who", "anna")
	b.Tick("may", "b", false)
	b.Tick("may", "a", true)
	b.Press("Yes")
	if p := b.Next(); p.Title != "There" || p.Status != http.StatusTeapot || strings.TrimSpace(p.Text) != "It got answer=yes&may=a&who=anna" {
		t.Errorf("got %+v", p)
	}
}
