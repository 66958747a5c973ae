package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// loggedIn are the People of a test: each request comes from the person that it returns, and
// the CSRF token is "token".
type loggedIn func() ferrule.Principal

func (p loggedIn) Current(*http.Request) (ferrule.Principal, string, bool) { return p(), "token", true }

func (p loggedIn) Peek(r *http.Request) (ferrule.Principal, string, bool) { return p.Current(r) }

func (p loggedIn) Session(_ http.ResponseWriter, r *http.Request) (ferrule.Principal, string, bool) {
	return p.Current(r)
}

func (loggedIn) CSRF(r *http.Request) bool { return r.PostFormValue("csrf") == "token" }

// newTestConsole returns a console with an API, and parts that have the rest.
func newTestConsole(t testing.TB, operations api.Parts, parts Parts) *Console {
	t.Helper()
	operations.Log, parts.Log = slog.New(slog.DiscardHandler), slog.New(slog.DiscardHandler)
	var err error
	if parts.API, err = api.New(operations); err != nil {
		t.Fatal(err)
	}
	parts.Header = func(context.Context, ferrule.Principal) Header { return Header{} }
	c := New(parts)
	t.Cleanup(c.Close)
	return c
}

// TestUnknownPage checks what an address without a page answers.
func TestUnknownPage(t *testing.T) {
	r := newCallRig(t)
	for _, c := range []struct {
		method, path string
		status       int
		text         string
	}{
		{http.MethodGet, "/nothing", http.StatusNotFound, "There is no page at this address"},
		{http.MethodGet, "/devices/robot/nothing", http.StatusNotFound, "There is no page at this address"},
		{http.MethodPost, "/devices", http.StatusMethodNotAllowed, ""},
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || !strings.Contains(strings.ToLower(w.Body.String()), strings.ToLower(c.text)) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}
