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
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
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

// waits starts a call and returns its request when it waits.
func (w *world) waits(who ferrule.Principal) (done <-chan error, request ferrule.Approval) {
	w.t.Helper()
	done = w.call(w.t.Context(), burn(who, `{"a":"<b>"}`))
	wait.For(w.t, wait.Ample, "the call waits", func() bool {
		select {
		case err := <-done:
			w.t.Fatal(err)
		default:
		}
		return len(w.approvals.List()) > 0
	})
	return done, w.approvals.List()[0]
}

// TestApprovalPage checks the page for people who have logged in, and who can answer there.
func TestApprovalPage(t *testing.T) {
	w := newWorld(t)
	const path = "/approvals"
	if page := w.tab("").send(w.pages(), http.MethodGet, path, nil); page.Code != http.StatusSeeOther || page.Header().Get("Location") != "/login?return=%2Fapprovals" {
		t.Errorf("nobody: %d %v", page.Code, page.Header())
	}
	ben := w.tab("ben")
	if page := ben.send(w.pages(), http.MethodGet, path, nil); page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "No call waits") || !strings.Contains(page.Body.String(), "cellar") {
		t.Errorf("%d %s", page.Code, page.Body)
	}
	done, request := w.waits(robby)
	page := ben.send(w.pages(), http.MethodGet, path, nil)
	if body := page.Body.String(); page.Code != http.StatusOK || !strings.Contains(body, "agent:robby") || !strings.Contains(body, "You answer as ben") || strings.Contains(body, "<b>") {
		t.Errorf("%d %s", page.Code, body)
	}
	own := csrfOf(page)
	for name, try := range map[string]struct {
		who    string
		csrf   string
		header []string
		want   int
	}{
		"viewer":               {"vic", "own", nil, http.StatusForbidden},
		"nobody":               {"", own, nil, http.StatusUnauthorized},
		"CSRF: no token":       {"ben", "", nil, http.StatusForbidden},
		"CSRF: another's":      {"anna", own, nil, http.StatusForbidden},
		"CSRF: another site":   {"ben", "own", []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"CSRF: another origin": {"ben", "own", []string{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			b := w.tab(try.who)
			if try.csrf == "own" {
				try.csrf = csrfOf(b.send(w.people(), http.MethodGet, "/login", nil))
			}
			page := b.send(w.pages(), http.MethodPost, path, url.Values{"answer": {"allow"}, "id": {request.ID}, "csrf": {try.csrf}}, try.header...)
			if page.Code != try.want || w.runs() != nil || w.approvals.List()[0].State != ferrule.ApprovalWaiting {
				t.Errorf("%d %s, ran %q", page.Code, page.Body, w.runs())
			}
		})
	}
	if page = ben.send(w.pages(), http.MethodPost, path, url.Values{"answer": {"allow"}, "id": {request.ID}, "csrf": {own}}); page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "Allowed") {
		t.Errorf("%d %s", page.Code, page.Body)
	}
	if err := <-done; err != nil || len(w.runs()) != 1 {
		t.Errorf("%v, ran %q", err, w.runs())
	}
	if last := w.journalText(); !strings.Contains(last, "allowed once by person:ben") {
		t.Error(last)
	}
	if page = ben.send(w.pages(), http.MethodPost, path, url.Values{"answer": {"allow"}, "id": {request.ID}, "csrf": {own}}); page.Code != http.StatusConflict {
		t.Errorf("again: %d %s", page.Code, page.Body)
	}
	// The caller cannot approve, the other person can deny.
	done, request = w.waits(anna)
	b := w.tab("anna")
	csrf := csrfOf(b.send(w.pages(), http.MethodGet, path, nil))
	if page = b.send(w.pages(), http.MethodPost, path, url.Values{"answer": {"allow"}, "id": {request.ID}, "csrf": {csrf}}); page.Code != http.StatusConflict || !strings.Contains(page.Body.String(), "your own call") {
		t.Errorf("her own call: %d %s", page.Code, page.Body)
	}
	if page = ben.send(w.pages(), http.MethodPost, path, url.Values{"answer": {"deny"}, "id": {request.ID}, "csrf": {own}}); page.Code != http.StatusOK {
		t.Errorf("%d %s", page.Code, page.Body)
	}
	isDenied(t, <-done, "was denied by person:ben")
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
