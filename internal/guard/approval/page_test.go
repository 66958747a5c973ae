package approval_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/people"
)

// people returns the people who may log in: anna and ben are operators, and vic is a
// viewer.
func (w *world) people() *people.People {
	if w.family != nil {
		return w.family
	}
	const origin = "http://127.0.0.1:3377"
	family, err := people.Open(people.Parts{
		File: filepath.Join(w.t.TempDir(), "people"), Log: slog.New(slog.DiscardHandler),
		Origin: func(*http.Request) string { return origin }, URL: func() (string, error) { return origin, nil },
		Record: func(ferrule.Principal, ferrule.AccessEvent, string, string, ferrule.Code) {},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { family.Close() })
	for name, role := range map[string]ferrule.PersonRole{"anna": ferrule.RoleOperator, "ben": ferrule.RoleOperator, "vic": ferrule.RoleViewer} {
		if _, err := family.Add(anna, name, role); err != nil {
			w.t.Fatal(err)
		}
	}
	w.family = family
	return family
}

// tab is a browser in which somebody may have logged in.
type tab struct {
	w       *world
	cookies map[string]*http.Cookie
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// tab returns a browser, logged in as somebody unless name is empty.
func (w *world) tab(name string) *tab {
	w.t.Helper()
	b := &tab{w, make(map[string]*http.Cookie)}
	if name == "" {
		return b
	}
	link, err := w.people().Link(anna, name)
	if err != nil {
		w.t.Fatal(err)
	}
	at, _ := url.Parse(link.URL)
	page := b.send(w.people(), http.MethodGet, at.Path, nil)
	if page = b.send(w.people(), http.MethodPost, at.Path, url.Values{"csrf": {csrfOf(page)}}); page.Code != http.StatusSeeOther {
		w.t.Fatalf("login: %d %s", page.Code, page.Body)
	}
	return b
}

func csrfOf(page *httptest.ResponseRecorder) string {
	if found := csrfField.FindStringSubmatch(page.Body.String()); found != nil {
		return found[1]
	}
	return ""
}

func (b *tab) send(to http.Handler, method, path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	out := httptest.NewRecorder()
	to.ServeHTTP(out, r)
	for _, c := range out.Result().Cookies() {
		b.cookies[c.Name] = c
	}
	return out
}

// TestLinkLoggedIn checks that an answer through a link is that of the person who has
// logged in, and needs the role and the form of that person.
func TestLinkLoggedIn(t *testing.T) {
	hook, got := newHook(t, func(int) int { return 200 })
	w := newWorld(t, hooked(hook))
	w.start(t)
	done := w.call(t.Context(), burn(robby, `{}`))
	link, _ := url.Parse(receive(t, got).Link)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if page := w.tab("vic").send(w.pages(), method, link.Path, url.Values{"answer": {"allow"}}); page.Code != http.StatusForbidden {
			t.Errorf("a viewer: %d %s", page.Code, page.Body)
		}
	}
	ben := w.tab("ben")
	page := ben.send(w.pages(), http.MethodGet, link.Path, nil)
	if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "You answer as ben") {
		t.Errorf("%d %s", page.Code, page.Body)
	}
	for _, forged := range []string{"", "x", csrfOf(w.tab("anna").send(w.pages(), http.MethodGet, link.Path, nil))} {
		if page := ben.send(w.pages(), http.MethodPost, link.Path, url.Values{"answer": {"allow"}, "csrf": {forged}}); page.Code != http.StatusForbidden {
			t.Errorf("CSRF: %d %s", page.Code, page.Body)
		}
	}
	if w.runs() != nil {
		t.Fatalf("ran %q", w.runs())
	}
	if page := ben.send(w.pages(), http.MethodPost, link.Path, url.Values{"answer": {"allow"}, "csrf": {csrfOf(page)}}); page.Code != http.StatusOK {
		t.Errorf("%d %s", page.Code, page.Body)
	}
	if err := <-done; err != nil || !strings.Contains(w.journalText(), "allowed once by person:ben") {
		t.Errorf("%v: %s", err, w.journalText())
	}
	if page := w.tab("").send(w.pages(), http.MethodPost, link.Path, url.Values{"answer": {"allow"}}); page.Code != http.StatusNotFound {
		t.Errorf("a used link: %d", page.Code)
	}
}

func (w *world) journalText() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, e := range w.journal {
		b.WriteString(e.Message + "\n")
	}
	return b.String()
}
