package people_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/people"
	"github.com/ferrulehq/ferrule/internal/guard/records"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const local, secure = "http://127.0.0.1:3377", "https://ferrule.example.com"

var owner = ferrule.Principal{Role: ferrule.Person, Name: "root", Auth: ferrule.AuthSocket}

// house is a gateway with people.
type house struct {
	*people.People
	t      *testing.T
	dir    string
	origin string
	issuer *fakeIssuer
	shared records.Synced
	grants func(name string, elsewhere bool) int

	mu     sync.Mutex
	events []string
}

func newHouse(t *testing.T, change ...func(*house)) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), origin: local}
	for _, c := range change {
		c(h)
	}
	h.open()
	return h
}

// open opens the people, as after a restart.
func (h *house) open() {
	h.t.Helper()
	parts := people.Parts{
		File: filepath.Join(h.dir, "people"), Shared: h.shared, Changed: h.grants, Log: slog.New(slog.DiscardHandler),
		Origin: func(r *http.Request) string { return h.origin },
		URL:    func() (string, error) { return h.origin, nil },
		Record: func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, fmt.Sprintf("%s %s %s %s%s", who, event, from, message, refused))
		},
	}
	if h.issuer != nil {
		parts.Issuers = func() []people.Issuer { return []people.Issuer{{Name: "company", Login: h.issuer}} }
	}
	p, err := people.Open(parts)
	if err != nil {
		h.t.Fatal(err)
	}
	h.People = p
	h.t.Cleanup(func() { p.Close() })
}

func (h *house) add(name string, role ferrule.PersonRole) {
	h.t.Helper()
	if _, err := h.Add(owner, name, role); err != nil {
		h.t.Fatal(err)
	}
}

// link returns the path of a new link.
func (h *house) link(name string) string {
	h.t.Helper()
	l, err := h.Link(owner, name)
	if err != nil {
		h.t.Fatal(err)
	}
	path, ok := strings.CutPrefix(l.URL, h.origin)
	if !ok {
		h.t.Fatalf("the link leads to %s", l.URL)
	}
	return path
}

// recorded reports whether an event was recorded that contains a text.
func (h *house) recorded(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Contains(strings.Join(h.events, "\n"), text)
}

// browser keeps cookies, and follows no redirects.
type browser struct {
	h       *house
	cookies map[string]*http.Cookie
	header  http.Header
	from    string
}

func (h *house) browser() *browser {
	return &browser{h: h, cookies: make(map[string]*http.Cookie), header: make(http.Header), from: "192.0.2.1:1234"}
}

// send sends a request. A form makes it a POST of a page of this origin.
func (b *browser) send(path string, form url.Values) *http.Response {
	b.h.t.Helper()
	r := httptest.NewRequest(http.MethodGet, b.h.origin+path, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, b.h.origin+path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.h.origin)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for name, values := range b.header {
		r.Header.Del(name)
		for _, value := range values {
			r.Header.Set(name, value)
		}
	}
	r.RemoteAddr = b.from
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	switch {
	case strings.HasPrefix(path, "/private"):
		if who, csrf, ok := b.h.Session(w, r); ok {
			if r.Method == http.MethodPost && !b.h.CSRF(r) {
				w.WriteHeader(http.StatusForbidden)
			}
			fmt.Fprintf(w, "hello %s %s %s name=\"csrf\" value=\"%s\" id=%s", who, who.Auth, who.Groups, csrf, who.TokenID)
		}
	default:
		b.h.ServeHTTP(w, r)
	}
	resp := w.Result()
	for _, c := range resp.Cookies() {
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c
		}
	}
	return resp
}

func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

var tokenField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// token returns the CSRF token of a page.
func token(t *testing.T, resp *http.Response) string {
	t.Helper()
	found := tokenField.FindStringSubmatch(text(t, resp))
	if found == nil {
		t.Fatalf("the page has no token, status %d", resp.StatusCode)
	}
	return found[1]
}

// login logs in with a link, and returns the answer to the button.
func (b *browser) login(link string) *http.Response {
	b.h.t.Helper()
	return b.send(link, url.Values{"csrf": {token(b.h.t, b.send(link, nil))}})
}

// hello returns what a page says that needs a session; empty if there is none.
func (b *browser) hello() string {
	b.h.t.Helper()
	resp := b.send("/private", nil)
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	said, _, _ := strings.Cut(text(b.h.t, resp), " name=")
	return said
}

func status(t *testing.T, resp *http.Response, want int) {
	t.Helper()
	if resp.StatusCode != want {
		t.Errorf("status %d, want %d: %s", resp.StatusCode, want, text(t, resp))
	}
}

func TestLogin(t *testing.T) {
	for name, origin := range map[string]string{"loopback": local, "TLS": secure} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now().Truncate(time.Second)
			h := newHouse(t, func(h *house) { h.origin = origin })
			h.add("anna", ferrule.RoleOperator)
			b := h.browser()
			resp := b.send("/private?x=1&y=%2F", nil)
			status(t, resp, http.StatusSeeOther)
			if to := resp.Header.Get("Location"); to != "/login?return=%2Fprivate%3Fx%3D1%26y%3D%252F" {
				t.Errorf("it leads to %s", to)
			}
			page := b.send(resp.Header.Get("Location"), nil)
			if body := text(t, page); page.StatusCode != http.StatusOK || !strings.Contains(body, "<code>ferrule login</code>") || strings.Contains(body, "<script") {
				t.Errorf("status %d: %s", page.StatusCode, body)
			}
			if policy := page.Header.Get("Content-Security-Policy"); policy != "default-src 'none'; style-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'" || page.Header.Get("X-Frame-Options") != "DENY" ||
				page.Header.Get("Cache-Control") != "no-store" || page.Header.Get("Referrer-Policy") != "same-origin" {
				t.Errorf("headers %v", page.Header)
			}
			link := h.link("anna")
			// A preview of the link by another program changes nothing.
			for range 3 {
				status(t, h.browser().send(link, nil), http.StatusOK)
			}
			resp = b.login(link)
			status(t, resp, http.StatusSeeOther)
			if to := resp.Header.Get("Location"); to != "/private?x=1&y=%2F" {
				t.Errorf("after the login it leads to %s", to)
			}
			if said := b.hello(); said != "hello person:anna login operator" {
				t.Errorf("said %q", said)
			}
			if !h.recorded("person:anna login 192.0.2.1 logged in with a one-time link as operator") {
				t.Errorf("recorded %q", h.events)
			}
			all := h.List()
			if len(all) != 1 || all[0].Name != "anna" || all[0].Sessions != 1 || all[0].LastLogin.Before(begun) {
				t.Errorf("%+v", all)
			}
			page = b.send("/login", nil)
			kept := h.browser()
			maps.Copy(kept.cookies, b.cookies)
			status(t, b.send("/logout", url.Values{"csrf": {token(t, page)}}), http.StatusOK)
			if b.hello() != "" || kept.hello() != "" || !h.recorded("person:anna logout 192.0.2.1 logged out") {
				t.Error("still logged in")
			}
			// The secret is nowhere on disk, nor in the journal.
			stored, err := os.ReadFile(filepath.Join(h.dir, "people"))
			if secret := filepath.Base(link); err != nil || strings.Contains(string(stored), secret) || h.recorded(secret) {
				t.Error("the secret of a link is stored", err)
			}
		})
	}
}

// TestOwner checks that the user of the control socket logs in as owner, and that an agent
// cannot make people or links, whatever its scopes.
func TestOwner(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	b.login(h.link(""))
	if said := b.hello(); said != "hello person:root login owner" {
		t.Errorf("said %q", said)
	}
	if _, err := h.Link(owner, "nobody"); ferrule.AsError(err).Code != ferrule.NotFound {
		t.Error(err)
	}
	agent := ferrule.Principal{Role: ferrule.Agent, Name: "robby", Scopes: ferrule.LimitTo(ferrule.ScopeAdmin)}
	for name, do := range map[string]func() error{
		"link":   func() error { _, err := h.Link(agent, ""); return err },
		"add":    func() error { _, err := h.Add(agent, "robby", ferrule.RoleOwner); return err },
		"role":   func() error { _, err := h.SetRole(agent, "root", ferrule.RoleOwner); return err },
		"remove": func() error { _, err := h.Remove(agent, "root"); return err },
		"logout": func() error { _, err := h.Logout(agent, "root"); return err },
	} {
		if err := do(); err == nil || ferrule.AsError(err).Code != ferrule.Denied {
			t.Errorf("%s by an agent: %v", name, err)
		}
	}
	for _, name := range []string{"", "link", "a/b", "a:b", "a b", strings.Repeat("x", 33)} {
		if _, err := h.Add(owner, name, ferrule.RoleViewer); err == nil {
			t.Errorf("a person called %q", name)
		}
	}
	if _, err := h.Logout(owner, "root"); err != nil || b.hello() != "" {
		t.Error("still logged in", err)
	}
	b.login(h.link(""))
	if b.hello() == "" {
		t.Error("cannot log in again")
	}
}

// TestRoles checks that a session has the scopes of its role, and that a change of the role
// ends it.
func TestRoles(t *testing.T) {
	for role, scopes := range map[ferrule.PersonRole]string{
		ferrule.RoleViewer: "read", ferrule.RoleOperator: "read change endanger", ferrule.RoleOwner: "read change endanger metrics admin", "": "", "king": "",
	} {
		if got := role.LoggedIn("x").Scopes; got.String() != scopes || !got.Limits() {
			t.Errorf("%s: %s", role, got)
		}
	}
	h := newHouse(t)
	h.add("anna", ferrule.RoleViewer)
	b, link := h.browser(), h.link("anna")
	b.login(h.link("anna"))
	if _, err := h.SetRole(owner, "anna", ferrule.RoleOperator); err != nil {
		t.Fatal(err)
	}
	if b.hello() != "" {
		t.Error("a session has an old role")
	}
	status(t, b.send(link, nil), http.StatusNotFound) // it was for another role
	b.login(h.link("anna"))
	if said := b.hello(); said != "hello person:anna login operator" {
		t.Errorf("said %q", said)
	}
	if _, err := h.Add(owner, "anna", ferrule.RoleOwner); err == nil {
		t.Error("added twice")
	}
	if _, err := h.Remove(owner, "anna"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.SetRole(owner, "anna", ferrule.RoleOwner); err == nil {
		t.Error("a removed person has a role")
	}
	h.add("anna", ferrule.RoleViewer) // again
	for _, want := range []string{"anna was added as viewer", "anna was viewer and is now operator", "person_removed  anna was removed"} {
		if !h.recorded(want) {
			t.Errorf("%q is not recorded: %q", want, h.events)
		}
	}
	h.Close()
	h.open()
	if all := h.List(); len(all) != 1 || all[0].Role != ferrule.RoleViewer || all[0].LastLogin.IsZero() {
		t.Errorf("after a restart: %+v", all)
	}
	if b.hello() != "" {
		t.Error("a session survives a restart")
	}
}

func TestTimeouts(t *testing.T) {
	for name, test := range map[string]struct {
		every, total time.Duration
		want         bool
	}{
		"used":       {29 * time.Minute, 11 * time.Hour, true},
		"idle":       {30 * time.Minute, 30 * time.Minute, false},
		"used, long": {20 * time.Minute, 12 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				b := h.browser()
				b.login(h.link(""))
				var last string
				for at := time.Duration(0); at < test.total; at += test.every {
					time.Sleep(test.every)
					last = b.hello()
				}
				if (last != "") != test.want {
					t.Errorf("%q after %v", last, test.total)
				}
			})
		})
	}
	t.Run("only peeked at", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			b := h.browser()
			b.login(h.link(""))
			peek := func() bool {
				r := httptest.NewRequest(http.MethodGet, h.origin+"/live", nil)
				for _, c := range b.cookies {
					r.AddCookie(c)
				}
				who, csrf, ok := h.Peek(r)
				return ok && who.Name != "" && csrf != ""
			}
			for range 29 {
				time.Sleep(time.Minute)
				if !peek() {
					t.Fatal("the session ended early")
				}
			}
			if time.Sleep(time.Minute); peek() || b.hello() != "" {
				t.Error("a page that only waits keeps its session alive")
			}
		})
	})
	t.Run("link", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			early, late := h.link(""), h.link("")
			time.Sleep(5*time.Minute - time.Second)
			status(t, h.browser().login(early), http.StatusSeeOther)
			b := h.browser()
			csrf := token(t, b.send(late, nil))
			time.Sleep(time.Second)
			status(t, b.send(late, url.Values{"csrf": {csrf}}), http.StatusNotFound)
			status(t, b.send(late, nil), http.StatusNotFound)
			if !h.recorded("unverified:browser login 192.0.2.1 a login link that is unknown, used or expireddenied") {
				t.Errorf("recorded %q", h.events)
			}
		})
	})
}

func TestAttacks(t *testing.T) {
	t.Run("session fixation", func(t *testing.T) {
		h := newHouse(t)
		b := h.browser()
		const planted = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
		b.cookies["ferrule-3377"] = &http.Cookie{Name: "ferrule-3377", Value: planted}
		b.login(h.link(""))
		first := b.cookies["ferrule-3377"].Value
		if b.hello() == "" || first == planted || len(first) < 26 {
			t.Errorf("the session is %q", first)
		}
		b.login(h.link("")) // also from a session that is good
		if second := b.cookies["ferrule-3377"].Value; second == first {
			t.Error("the ID stays after another login")
		}
		other := h.browser()
		for _, id := range []string{planted, first} {
			other.cookies["ferrule-3377"] = &http.Cookie{Name: "ferrule-3377", Value: id}
			if other.hello() != "" {
				t.Errorf("%q is a session", id)
			}
		}
	})
	t.Run("two cookies", func(t *testing.T) {
		h := newHouse(t)
		b := h.browser()
		b.login(h.link(""))
		b.cookies["another site's"] = &http.Cookie{Name: "ferrule-3377", Value: "x"}
		if b.hello() != "" {
			t.Error("one of two sessions was chosen")
		}
	})
	t.Run("CSRF", func(t *testing.T) {
		h := newHouse(t)
		b := h.browser()
		b.login(h.link(""))
		mallory := h.browser()
		mallory.login(h.link(""))
		own, others := token(t, b.send("/login", nil)), token(t, mallory.send("/login", nil))
		for name, test := range map[string]struct {
			token  string
			header http.Header
			path   string
		}{
			"no token":          {"", nil, "/logout"},
			"wrong token":       {"x", nil, "/logout"},
			"another's token":   {others, nil, "/logout"},
			"another site":      {own, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}, "/logout"},
			"a sibling site":    {own, http.Header{"Sec-Fetch-Site": {"same-site"}}, "/logout"},
			"an old browser":    {own, http.Header{"Sec-Fetch-Site": nil, "Origin": {"https://evil.example"}}, "/logout"},
			"a page without it": {"", nil, "/private"},
			"a header":          {own, http.Header{people.CSRFHeader: {others}}, "/private"},
		} {
			b.header = test.header
			status(t, b.send(test.path, url.Values{"csrf": {test.token}}), http.StatusForbidden)
			b.header = nil
			if b.hello() == "" {
				t.Fatalf("%s: logged out", name)
			}
		}
		b.header = http.Header{people.CSRFHeader: {own}}
		status(t, b.send("/private", url.Values{}), http.StatusOK)
		b.header = nil
		resp := h.browser().send("/private", url.Values{"csrf": {own}})
		status(t, resp, http.StatusUnauthorized)
		status(t, b.send("/logout?csrf="+own, nil), http.StatusOK) // a GET
		if b.hello() == "" {
			t.Error("a GET logs out")
		}
	})
	t.Run("login CSRF", func(t *testing.T) { // mallory logs somebody else in as mallory
		h := newHouse(t)
		mallory, victim := h.browser(), h.browser()
		link := h.link("")
		csrf := token(t, mallory.send(link, nil))
		status(t, victim.send(link, url.Values{"csrf": {csrf}}), http.StatusForbidden) // no cookie
		victim.send(link, nil)
		status(t, victim.send(link, url.Values{"csrf": {csrf}}), http.StatusForbidden) // another visit
		if victim.hello() != "" {
			t.Error("logged in")
		}
		status(t, mallory.send(link, url.Values{"csrf": {csrf}}), http.StatusSeeOther) // the link was not used up
	})
	t.Run("cookie flags", func(t *testing.T) {
		for origin, want := range map[string]string{
			local:  "ferrule-3377=ID; Path=/; HttpOnly; SameSite=Lax",
			secure: "__Host-ferrule=ID; Path=/; HttpOnly; Secure; SameSite=Lax",
		} {
			h := newHouse(t, func(h *house) { h.origin = origin })
			b := h.browser()
			all := b.login(h.link("")).Header["Set-Cookie"]
			for _, c := range all {
				name, rest, _ := strings.Cut(c, "=")
				value, rest, _ := strings.Cut(rest, ";")
				if got := name + "=ID;" + rest; value != "" && got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
			if len(all) != 2 {
				t.Errorf("cookies %q", all)
			}
		}
	})
	t.Run("a cookie of plain HTTP over TLS", func(t *testing.T) {
		h := newHouse(t, func(h *house) { h.origin = secure })
		b := h.browser()
		b.login(h.link(""))
		b.cookies["ferrule-3377"] = &http.Cookie{Name: "ferrule-3377", Value: b.cookies["__Host-ferrule"].Value}
		delete(b.cookies, "__Host-ferrule")
		if b.hello() != "" {
			t.Error("accepted")
		}
	})
	t.Run("plain HTTP on the network", func(t *testing.T) {
		for _, origin := range []string{"http://192.168.1.2:3377", "http://127.0.0.1.evil.example", "http://localhost.evil.example", "ftp://localhost", ""} {
			h := newHouse(t, func(h *house) { h.origin = local })
			b := h.browser()
			b.login(h.link(""))
			link := h.link("")
			h.origin = origin
			for _, path := range []string{"/login", link, "/logout"} {
				r := httptest.NewRequest(http.MethodGet, local+path, nil)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "needs HTTPS") || len(w.Result().Cookies()) > 0 {
					t.Errorf("%s%s: %d", origin, path, w.Code)
				}
			}
			r := httptest.NewRequest(http.MethodGet, local+"/private", nil)
			r.AddCookie(b.cookies["ferrule-3377"])
			if _, _, ok := h.Current(r); ok {
				t.Errorf("a session at %s", origin)
			}
		}
	})
	t.Run("reused link", func(t *testing.T) {
		h := newHouse(t)
		link := h.link("")
		status(t, h.browser().login(link), http.StatusSeeOther)
		status(t, h.browser().send(link, nil), http.StatusNotFound)
		// Two browsers press the button at the same time.
		link = h.link("")
		codes := make(chan int, 16)
		var press []func()
		for range cap(codes) {
			b := h.browser()
			csrf := token(t, b.send(link, nil))
			press = append(press, func() { codes <- b.send(link, url.Values{"csrf": {csrf}}).StatusCode })
		}
		for _, fn := range press {
			go fn()
		}
		counts := make(map[int]int)
		for range cap(codes) {
			counts[<-codes]++
		}
		if counts[http.StatusSeeOther] != 1 {
			t.Errorf("codes %v", counts)
		}
	})
	t.Run("guessed link", func(t *testing.T) {
		h := newHouse(t)
		b := h.browser()
		counts := make(map[int]int)
		for i := range 200 {
			counts[b.send(fmt.Sprintf("/login/link/%026d", i), nil).StatusCode]++
		}
		if counts[http.StatusNotFound] < 30 || counts[http.StatusNotFound] > 60 || counts[http.StatusTooManyRequests] < 140 {
			t.Errorf("codes %v", counts)
		}
		if n := len(h.events); n > 60 {
			t.Errorf("%d records", n)
		}
		status(t, b.login(h.link("")), http.StatusSeeOther) // a right one always works
		neighbor := h.browser()
		neighbor.from = "192.0.2.2:1"
		status(t, neighbor.send("/login/link/x", nil), http.StatusNotFound)
	})
	t.Run("open redirect", func(t *testing.T) {
		for _, back := range []string{
			"https://evil.example", "//evil.example", `/\evil.example`, `\\evil.example`, "/\t/evil.example", "/\n/evil.example", "javascript:alert(1)",
			"evil.example", "", "/%", "///evil.example", "http:evil.example", "/\u2028/evil.example", "/a\r\nSet-Cookie: x=y", "/\x00", "/" + strings.Repeat("x", 3000),
		} {
			h := newHouse(t)
			b := h.browser()
			b.send("/login?"+url.Values{"return": {back}}.Encode(), nil)
			resp := b.login(h.link(""))
			if to := resp.Header.Get("Location"); to != "/devices" || resp.Header.Get("Set-Cookie") == "" {
				t.Errorf("%q leads to %q", back, to)
			}
			if resp = b.send("/login?"+url.Values{"return": {back}}.Encode(), nil); resp.Header.Get("Location") != "" {
				t.Errorf("%q leads to %q when logged in", back, resp.Header.Get("Location"))
			}
		}
	})
	t.Run("header injection", func(t *testing.T) {
		h := newHouse(t, func(h *house) { h.issuer = &fakeIssuer{} })
		b := h.browser()
		for _, path := range []string{"/login?return=/a%0d%0aSet-Cookie:%20x=y", "/login/link/%0d%0aX:%20y", "/login/with/%0d%0aX:%20y", "/login/callback?state=%0d%0aX:y&code=%0d%0a"} {
			resp := b.send(path, nil)
			if strings.Contains(text(t, resp), "\r\n") || resp.Header.Get("X") != "" || resp.Header.Get("Location") != "" {
				t.Errorf("%s: %v", path, resp.Header)
			}
		}
	})
	t.Run("forged visit", func(t *testing.T) {
		h, other := newHouse(t), newHouse(t)
		b, foreign := h.browser(), other.browser()
		foreign.send("/login?return=/elsewhere", nil)
		b.cookies["ferrule-login-3377"] = foreign.cookies["ferrule-login-3377"] // signed by another gateway
		if to := b.login(h.link("")).Header.Get("Location"); to != "/devices" {
			t.Errorf("it leads to %s", to)
		}
	})
	t.Run("removed person", func(t *testing.T) {
		cloud := &cloud{}
		var nodes []*house
		for range 3 {
			nodes = append(nodes, newHouse(t, func(h *house) { h.shared = cloud.node() }))
		}
		nodes[0].add("anna", ferrule.RoleOperator)
		var all []*browser
		for _, h := range nodes {
			wait.For(t, "anna is known", func() bool { _, err := h.Link(owner, "anna"); return err == nil })
			b := h.browser()
			b.login(h.link("anna"))
			if b.hello() == "" {
				t.Fatal("not logged in")
			}
			all = append(all, b)
		}
		link := nodes[1].link("anna")
		if _, err := nodes[2].Remove(owner, "anna"); err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			wait.For(t, "the session has ended", func() bool { return b.hello() == "" })
		}
		status(t, all[1].send(link, nil), http.StatusNotFound)
		if _, err := nodes[0].Link(owner, "anna"); err == nil {
			t.Error("a removed person gets a link")
		}
	})
	t.Run("flood", func(t *testing.T) {
		h := newHouse(t)
		h.add("anna", ferrule.RoleViewer)
		first := h.browser()
		first.login(h.link("anna"))
		var sessions []*browser
		for range 40 { // sessions of one person
			b := h.browser()
			b.login(h.link("anna"))
			sessions = append(sessions, b)
		}
		if all := h.List(); all[0].Sessions != 16 {
			t.Errorf("%+v", all)
		}
		if first.hello() != "" || sessions[39].hello() == "" || sessions[24].hello() == "" {
			t.Error("not the oldest sessions have ended")
		}
		old := h.link("anna")
		for range 8 {
			h.link("anna")
		}
		status(t, first.send(old, nil), http.StatusNotFound)
		var err error
		links := 0
		for i := 0; err == nil && i < 1000; i++ {
			person := owner
			person.Name = fmt.Sprintf("user-%d", i)
			if _, err = h.Link(person, ""); err == nil {
				links++
			}
		}
		if err == nil || ferrule.AsError(err).Code != ferrule.Limited || links > 256 {
			t.Errorf("%d links, %v", links, err)
		}
	})
	t.Run("flood of sessions", func(t *testing.T) {
		h := newHouse(t)
		for i := range 1100 {
			h.Begin(fmt.Sprintf("user-%d", i))
		}
		if n := len(h.List()); n != 1024 {
			t.Errorf("%d sessions", n)
		}
	})
}

// cloud has shared records. A node that is cut off hears nothing.
type cloud struct {
	mu    sync.Mutex
	all   map[string][]byte
	nodes []*cloudNode
}

type cloudNode struct {
	*cloud
	fn     func(key string, value []byte)
	synced func()
	off    bool
}

func (c *cloud) node() *cloudNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &cloudNode{cloud: c}
	c.nodes = append(c.nodes, n)
	return n
}

func (n *cloudNode) Put(key string, value []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.off {
		return errors.New("cut off")
	}
	if n.all == nil {
		n.all = make(map[string][]byte)
	}
	n.all[key] = value
	for _, other := range n.nodes {
		if other.fn != nil && !other.off {
			go other.fn(key, value)
		}
	}
	return nil
}

func (n *cloudNode) Delete(string) error { return nil }

func (n *cloudNode) Watch(fn func(key string, value []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fn = fn
	if n.off {
		return
	}
	for key, value := range n.all {
		go fn(key, value)
	}
}

func (n *cloudNode) OnSync(fn func()) { n.synced = fn }

// cut cuts a node off, or connects it again.
func (n *cloudNode) cut(off bool) {
	n.mu.Lock()
	n.off = off
	all := maps.Clone(n.all)
	n.mu.Unlock()
	if !off {
		for key, value := range all {
			n.fn(key, value)
		}
		n.synced()
	}
}

// TestNodes checks what nodes know that were cut off: a person who was removed stays
// removed, whichever node has it from when.
func TestNodes(t *testing.T) {
	cloud := &cloud{}
	one, two := cloud.node(), cloud.node()
	a, b := newHouse(t, func(h *house) { h.shared = one }), newHouse(t, func(h *house) { h.shared = two })
	has := func(h *house, want string) {
		t.Helper()
		wait.For(t, want, func() bool {
			var all []string
			for _, p := range h.List() {
				all = append(all, p.Name+" "+string(p.Role))
			}
			return strings.Join(all, ", ") == want
		})
	}
	a.add("anna", ferrule.RoleOperator)
	a.add("ben", ferrule.RoleOwner)
	has(b, "anna operator, ben owner")
	cloud.mu.Lock()
	old := maps.Clone(cloud.all)
	cloud.mu.Unlock()
	two.cut(true)
	out, err := b.Remove(owner, "anna")
	if err != nil || !strings.Contains(out.Note, "Other nodes could not be told yet") {
		t.Errorf("%+v %v", out, err)
	}
	if _, err := a.SetRole(owner, "ben", ferrule.RoleViewer); err != nil {
		t.Fatal(err)
	}
	has(a, "anna operator, ben viewer")
	has(b, "ben owner")
	b.Close()
	b.open() // what it knew survives
	has(b, "ben owner")
	two.cut(false)
	has(a, "ben viewer")
	has(b, "ben viewer")
	a.Close()
	a.open()
	has(a, "ben viewer")
	// A node that comes back with old records changes nothing.
	for key, value := range old {
		if err := cloud.node().Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, "the old records are replaced", func() bool {
		cloud.mu.Lock()
		defer cloud.mu.Unlock()
		for key, value := range old {
			if bytes.Equal(cloud.all[key], value) {
				return false
			}
		}
		return true
	})
	has(a, "ben viewer")
	has(b, "ben viewer")
}

// TestLoginID: all logins of a person have one ID, also after a restart, until the person is
// logged out, removed or has another role. Other nodes know.
func TestLoginID(t *testing.T) {
	cloud := &cloud{}
	one, two := cloud.node(), cloud.node()
	a, b := newHouse(t, func(h *house) { h.shared = one }), newHouse(t, func(h *house) { h.shared = two })
	login := func() string {
		t.Helper()
		browser := a.browser()
		status(t, browser.login(a.link("anna")), http.StatusSeeOther)
		_, id, _ := strings.Cut(text(t, browser.send("/private", nil)), " id=")
		if listed := a.List()[0].LoginID; id == "" || listed != id {
			t.Errorf("the ID is %q, listed %q", id, listed)
		}
		return id
	}
	ended := func(id, want string) {
		t.Helper()
		for _, h := range []*house{a, b} {
			wait.For(t, want, func() bool {
				ended, known := h.Ended("anna", id)
				return fmt.Sprint(ended, known) == want
			})
		}
	}
	a.add("anna", ferrule.RoleOperator)
	first := login()
	ended(first, "false true")
	a.Close()
	a.open()
	if again := login(); again != first {
		t.Errorf("another login has the ID %s, not %s", again, first)
	}
	for name, change := range map[string]func() error{
		"logged out":   func() error { _, err := a.Logout(owner, "anna"); return err },
		"another role": func() error { _, err := a.SetRole(owner, "anna", ferrule.RoleOwner); return err },
		"removed":      func() error { _, err := a.Remove(owner, "anna"); a.add("anna", ferrule.RoleOperator); return err },
	} {
		if err := change(); err != nil {
			t.Fatal(name, err)
		}
		ended(first, "true true")
		if first = login(); first == "" {
			t.Errorf("%s: no ID", name)
		}
		ended(first, "false true")
	}
	ended("zzzzzzzzzzz", "true false") // it may be new on another node
	ended("not an ID", "true true")
}

// TestEndsGrants checks that what a person has permitted ends when the person is logged out or
// removed, also if the person is a user of the machine or of an issuer, who has no record.
func TestEndsGrants(t *testing.T) {
	cloud := &cloud{}
	var mu sync.Mutex
	var ended []string
	has := map[string]int{"mallory": 1, "company:7": 2}
	grants := func(node string) func(*house) {
		return func(h *house) {
			h.shared = cloud.node()
			h.grants = func(name string, elsewhere bool) int {
				mu.Lock()
				defer mu.Unlock()
				n := has[name]
				if !elsewhere {
					delete(has, name)
				}
				ended = append(ended, fmt.Sprint(node, " ", name, " ", elsewhere))
				return n
			}
		}
	}
	a := newHouse(t, grants("a"))
	newHouse(t, grants("b"))
	a.add("anna", ferrule.RoleViewer)
	for _, test := range []struct {
		change func(ferrule.Principal, string) (ferrule.KnownPerson, error)
		name   string
		known  bool
	}{{a.Logout, "anna", true}, {a.Remove, "anna", true}, {a.Remove, "anna", false}, {a.Remove, "mallory", true}, {a.Logout, "company:7", true}, {a.Logout, "nobody", false}, {a.Remove, "nobody", false}} {
		mu.Lock()
		ended = nil
		mu.Unlock()
		if _, err := test.change(owner, test.name); (err == nil) != test.known {
			t.Errorf("%s: %v", test.name, err)
		}
		if !test.known {
			continue
		}
		for _, want := range []string{"a " + test.name + " false", "b " + test.name + " true"} {
			wait.For(t, want, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return slices.Contains(ended, want)
			})
		}
	}
}

// fakeIssuer knows one person.
type fakeIssuer struct {
	who                              people.Identity
	err                              error
	redirect, state, nonce, verifier string // of Begin
	finished                         int
}

func (i *fakeIssuer) Begin(redirect, state, nonce, verifier string) string {
	i.redirect, i.state, i.nonce, i.verifier = redirect, state, nonce, verifier
	return "https://login.example/authorize?state=" + url.QueryEscape(state)
}

func (i *fakeIssuer) Code(_ context.Context, answer url.Values, _ string) (string, error) {
	if answer.Get("error") != "" {
		return "", errors.New("refused")
	}
	return answer.Get("code"), nil // whatever the state is
}

func (i *fakeIssuer) Finish(_ context.Context, code, redirect, nonce, verifier string) (people.Identity, error) {
	i.finished++
	if code != "code" || redirect != i.redirect || nonce != i.nonce || verifier != i.verifier {
		return people.Identity{}, errors.New("not what it began with")
	}
	return i.who, i.err
}

func TestIssuer(t *testing.T) {
	known := people.Identity{Subject: "a/b:1", Name: "Anna <b>", Groups: []string{"viewer", "staff", "operator"}}
	for name, test := range map[string]struct {
		who    people.Identity
		err    error
		change func(h *house, b *browser, q url.Values)
		code   int
		want   string
	}{
		"known":        {who: known, code: http.StatusSeeOther, want: "hello person:company:a%2Fb:1 login operator,staff"},
		"no role":      {who: people.Identity{Subject: "x", Name: "Anna <b>", Groups: []string{"staff"}}, code: http.StatusForbidden},
		"no groups":    {who: people.Identity{Subject: "x"}, code: http.StatusForbidden},
		"no subject":   {who: people.Identity{Groups: []string{"owner"}}, code: http.StatusForbidden},
		"long subject": {who: people.Identity{Subject: strings.Repeat("x", 400), Groups: []string{"owner"}}, code: http.StatusForbidden},
		"refused":      {who: known, err: errors.New("no"), code: http.StatusForbidden},
		"denied there": {who: known, change: func(_ *house, _ *browser, q url.Values) { q.Del("code"); q.Set("error", "access_denied<script>") }, code: http.StatusForbidden},
		"wrong code":   {who: known, change: func(_ *house, _ *browser, q url.Values) { q.Set("code", "x") }, code: http.StatusForbidden},
		"wrong state":  {who: known, change: func(_ *house, _ *browser, q url.Values) { q.Set("state", "company.x") }, code: http.StatusForbidden},
		"no state":     {who: known, change: func(_ *house, _ *browser, q url.Values) { q.Del("state") }, code: http.StatusForbidden},
		"another issuer": {who: known, change: func(_ *house, _ *browser, q url.Values) {
			q.Set("state", "other"+strings.TrimPrefix(q.Get("state"), "company"))
		}, code: http.StatusForbidden},
		"another browser": {who: known, change: func(_ *house, b *browser, _ url.Values) { clear(b.cookies) }, code: http.StatusForbidden},
		"another visit":   {who: known, change: func(_ *house, b *browser, _ url.Values) { b.send("/login", nil) }, code: http.StatusForbidden},
		"late":            {who: known, change: func(*house, *browser, url.Values) { time.Sleep(15 * time.Minute) }, code: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				issuer := &fakeIssuer{who: test.who, err: test.err}
				h := newHouse(t, func(h *house) { h.issuer = issuer })
				b := h.browser()
				page := b.send("/login?return=/private", nil)
				if body := text(t, page); !strings.Contains(body, `href="/login/with/company"`) || !strings.Contains(body, "Log in with company") {
					t.Error(body)
				}
				resp := b.send("/login/with/company", nil)
				if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to, "https://login.example/") {
					t.Fatalf("%d %s", resp.StatusCode, to)
				}
				if issuer.redirect != local+"/login/callback" || len(issuer.verifier) != 43 || issuer.nonce == issuer.verifier || strings.Contains(issuer.state, issuer.nonce) {
					t.Errorf("%+v", issuer)
				}
				q := url.Values{"state": {issuer.state}, "code": {"code"}}
				if test.change != nil {
					test.change(h, b, q)
				}
				resp = b.send("/login/callback?"+q.Encode(), nil)
				body := text(t, resp)
				if resp.StatusCode != test.code || strings.Contains(body, "<script") || strings.Contains(body, "<b>") {
					t.Errorf("status %d: %s", resp.StatusCode, body)
				}
				if said := b.hello(); said != test.want {
					t.Errorf("said %q", said)
				}
				if test.want == "" && !h.recorded("unverified:browser login 192.0.2.1") {
					t.Errorf("recorded %q", h.events)
				}
				if name == "no role" && !strings.Contains(body, "none of your groups has a role") {
					t.Error(body)
				}
				if test.want != "" {
					if resp.Header.Get("Location") != "/private" {
						t.Errorf("it leads to %s", resp.Header.Get("Location"))
					}
					// The same answer again is not accepted.
					status(t, b.send("/login/callback?"+q.Encode(), nil), http.StatusForbidden)
					if _, err := h.Logout(owner, "company:a%2Fb:1"); err != nil || b.hello() != "" {
						t.Error("still logged in", err)
					}
				}
			})
		})
	}
	t.Run("lock out", func(t *testing.T) {
		issuer := &fakeIssuer{who: known}
		h := newHouse(t, func(h *house) { h.issuer = issuer })
		b, other := h.browser(), h.browser()
		b.send("/login/with/company", nil)
		for i := range 100 {
			if resp := other.send("/login/callback?state=company.x&code=x", nil); i == 99 {
				status(t, resp, http.StatusTooManyRequests)
			}
		}
		status(t, b.send("/login/callback?"+url.Values{"state": {issuer.state}, "code": {"code"}}.Encode(), nil), http.StatusSeeOther)
	})
	t.Run("flood", func(t *testing.T) {
		issuer := &fakeIssuer{err: errors.New("no")}
		h := newHouse(t, func(h *house) { h.issuer = issuer })
		b := h.browser()
		for range 100 {
			b.send("/login/with/company", nil)
			b.send("/login/callback?"+url.Values{"state": {issuer.state}, "code": {"x"}}.Encode(), nil)
		}
		if issuer.finished > 40 {
			t.Errorf("the issuer was asked %d times", issuer.finished)
		}
	})
	status(t, newHouse(t).browser().send("/login/with/company", nil), http.StatusNotFound)
}
