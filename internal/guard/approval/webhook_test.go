package approval_test

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/console"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const secret = "0123456789abcdef0123"

// received is what a webhook got.
type received struct {
	Event, Text, Link string
	Request           ferrule.Approval
}

// newHook returns a webhook that checks signatures. Status answers attempt n, from 1.
func newHook(t *testing.T, status func(n int) int) (url string, got <-chan received) {
	out := make(chan received, 16)
	var mu sync.Mutex
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		want := approval.Sign(secret, r.Header.Get("Ferrule-Timestamp"), body)
		if err != nil || !hmac.Equal([]byte(want), []byte(r.Header.Get("Ferrule-Signature"))) {
			t.Errorf("wrong signature of %s", body)
		}
		mu.Lock()
		n++
		code := status(n)
		mu.Unlock()
		if code/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		if r.URL.Path == "/elsewhere" {
			t.Error("a redirect was followed")
		}
		w.WriteHeader(code)
		if code == http.StatusOK {
			var message received
			if err := json.Unmarshal(body, &message); err != nil {
				t.Error(err)
			}
			out <- message
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, out
}

// start runs the approvals of w until the test ends.
func (w *world) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.approvals.Run(ctx) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func hooked(url string) func(w *world) {
	return func(w *world) {
		w.node = "attic"
		w.cfg.Webhook = approval.Webhook{URL: ferrule.Secret(url), Secret: secret, Link: "http://127.0.0.1:1"}
	}
}

func receive(t *testing.T, got <-chan received) received {
	t.Helper()
	select {
	case m := <-got:
		return m
	case <-time.After(wait.Ample):
		t.Fatal("the webhook was not called")
		return received{}
	}
}

func TestWebhookLink(t *testing.T) {
	hook, got := newHook(t, func(n int) int { return []int{500, 302, 200}[min(n, 3)-1] })
	if testing.Short() {
		hook, got = newHook(t, func(int) int { return 200 })
	}
	w := newWorld(t, hooked(hook))
	w.start(t)
	done := w.call(t.Context(), burn(robby, `{"a":"<script>alert(1)</script>"}`))
	m := receive(t, got)
	if m.Event != "approval_requested" || m.Request.Tool != "burn" || !strings.HasSuffix(m.Request.ID, "@attic") || !strings.Contains(m.Text, "agent:robby wants to call burn on oven") {
		t.Errorf("%+v", m)
	}
	link, err := url.Parse(m.Link)
	if err != nil || len(link.Path) < len("/approvals/")+26 {
		t.Fatal(m.Link, err)
	}
	stored, err := os.ReadFile(filepath.Join(w.dir, "approvals.jsonl"))
	if token := strings.TrimPrefix(link.Path, "/approvals/"); err != nil || strings.Contains(string(stored), token) {
		t.Error("the token of the link is on disk", err)
	}
	// A preview of the link changes nothing.
	for range 3 {
		page := w.visit(http.MethodGet, link.Path, "")
		if page.Code != http.StatusOK || strings.Contains(page.Body.String(), "<script") || strings.Contains(page.Body.String(), "<b>gently") ||
			!strings.Contains(page.Body.String(), "&lt;script&gt;alert(1)") || !strings.Contains(page.Body.String(), "Burns &lt;b&gt;gently") || !strings.Contains(page.Body.String(), "online since") {
			t.Fatalf("page %d: %s", page.Code, page.Body)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if page.Header().Get(name) != want {
				t.Errorf("%s: %q", name, page.Header().Get(name))
			}
		}
	}
	for _, answer := range []string{"", "answer=", "answer=yes", "answer=%", strings.Repeat("x", 8<<10)} {
		if page := w.visit(http.MethodPost, link.Path, answer); page.Code != http.StatusBadRequest {
			t.Errorf("%.20q: %d", answer, page.Code)
		}
	}
	if page := w.visit(http.MethodDelete, link.Path, ""); page.Code != http.StatusMethodNotAllowed {
		t.Error(page.Code)
	}
	if w.runs() != nil {
		t.Fatal("it ran without an answer")
	}
	if page := w.visit(http.MethodPost, link.Path, "answer=allow"); page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "Allowed") {
		t.Errorf("page %d: %s", page.Code, page.Body)
	}
	if err := <-done; err != nil || len(w.runs()) != 1 {
		t.Errorf("%v, ran %q", err, w.runs())
	}
	// The link works once, for this call.
	again := w.call(t.Context(), burn(robby, `{"a":"<script>alert(1)</script>"}`))
	next := receive(t, got)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if page := w.visit(method, link.Path, "answer=allow"); page.Code != http.StatusNotFound {
			t.Errorf("%s of a used link: %d", method, page.Code)
		}
	}
	other, _ := url.Parse(next.Link)
	if page := w.visit(http.MethodPost, other.Path, "answer=deny"); page.Code != http.StatusOK {
		t.Error(page.Code)
	}
	isDenied(t, <-again, "was denied by person:link")
	if len(w.runs()) != 1 {
		t.Errorf("ran %q", w.runs())
	}
}

// visit opens a page.
func (w *world) visit(method, path, form string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(form))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	out := httptest.NewRecorder()
	w.pages().ServeHTTP(&slowReader{out, w}, req)
	return out
}

// pages are the pages of the approvals.
func (w *world) pages() *approval.Pages {
	return &approval.Pages{
		Approvals: w.approvals, People: w.people(),
		Answer: func(_ context.Context, who ferrule.Principal, id string, answer approval.Answer) error {
			code, _ := approval.SplitID(id)
			_, err := w.approvals.Answer(who, code, answer)
			return err
		},
		Draw: func(w http.ResponseWriter, status int, p approval.Page) error {
			return console.WriteLink(w, status, console.LinkPage(p))
		},
	}
}

// slowReader gets a page only while others can use the approvals.
type slowReader struct {
	*httptest.ResponseRecorder
	w *world
}

func (s *slowReader) Write(data []byte) (int, error) {
	listed := make(chan struct{})
	go func() { s.w.approvals.List(); close(listed) }()
	select {
	case <-listed:
	case <-time.After(wait.Ample):
		s.w.t.Error("a page that is being sent holds all approvals up")
	}
	return s.ResponseRecorder.Write(data)
}

// TestWrongLinks tries wrong tokens until they are refused. The right one still works.
func TestWrongLinks(t *testing.T) {
	hook, got := newHook(t, func(int) int { return 200 })
	w := newWorld(t, hooked(hook))
	w.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.call(ctx, burn(robby, `{}`))
	m := receive(t, got)
	codes := make(map[int]int)
	for range 200 {
		codes[w.visit(http.MethodPost, "/approvals/"+strings.Repeat("a", 26), "answer=allow").Code]++
	}
	if codes[http.StatusNotFound] < 60 || codes[http.StatusNotFound] > 70 || codes[http.StatusTooManyRequests] < 130 {
		t.Errorf("codes %v", codes)
	}
	if page := w.visit(http.MethodGet, "/approvals/", ""); page.Code == http.StatusOK {
		t.Error("an empty token is right")
	}
	link, _ := url.Parse(m.Link)
	if page := w.visit(http.MethodGet, link.Path, ""); page.Code != http.StatusOK {
		t.Errorf("the right link: %d", page.Code)
	}
}

// TestWebhookAfterRestart sends a new link for a request of an earlier run.
func TestWebhookAfterRestart(t *testing.T) {
	hook, got := newHook(t, func(int) int { return 200 })
	w := newWorld(t, hooked(hook))
	stop := w.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := w.call(ctx, burn(robby, `{}`))
	first, _ := url.Parse(receive(t, got).Link)
	cancel()
	<-left
	stop()
	w.approvals.Close()
	w.open()
	w.start(t)
	second, _ := url.Parse(receive(t, got).Link)
	if page := w.visit(http.MethodGet, first.Path, ""); page.Code != http.StatusNotFound {
		t.Errorf("the old link: %d", page.Code)
	}
	if page := w.visit(http.MethodPost, second.Path, "answer=allow_for"); page.Code != http.StatusOK {
		t.Errorf("the new link: %d %s", page.Code, page.Body)
	}
	for range 2 {
		if err := <-w.call(t.Context(), burn(robby, `{}`)); err != nil {
			t.Error(err)
		}
	}
}

func TestConfig(t *testing.T) {
	hook := approval.Webhook{URL: "https://hook.example.com/x", Secret: secret, Link: "https://ferrule.example.com"}
	for name, test := range map[string]struct {
		change func(c *approval.Config)
		want   string
	}{
		"default":         {func(*approval.Config) {}, ""},
		"webhook":         {func(c *approval.Config) { c.Webhook = hook }, ""},
		"no wait":         {func(c *approval.Config) { c.Wait = 0 }, "wait: must be from 1s"},
		"long keep":       {func(c *approval.Config) { c.Keep = 48 * time.Hour }, "keep: must be from 1s"},
		"short secret":    {func(c *approval.Config) { c.Webhook = hook; c.Webhook.Secret = "short" }, "webhook.secret: must have at least 16"},
		"no URL":          {func(c *approval.Config) { c.Webhook = hook; c.Webhook.URL = "" }, "webhook: secret and link need a url"},
		"another scheme":  {func(c *approval.Config) { c.Webhook = hook; c.Webhook.URL = "ftp://x" }, "webhook.url: must begin with https://"},
		"plain HTTP":      {func(c *approval.Config) { c.Webhook = hook; c.Webhook.URL = "http://192.168.1.2/x" }, "webhook.url: must begin with https:// if there is a link"},
		"plain HTTP link": {func(c *approval.Config) { c.Webhook = hook; c.Webhook.Link = "http://192.168.1.2" }, "webhook.link: must begin with https://"},
		"without a link":  {func(c *approval.Config) { c.Webhook = hook; c.Webhook.URL, c.Webhook.Link = "http://192.168.1.2/x", "" }, ""},
		"loopback": {func(c *approval.Config) {
			c.Webhook = hook
			c.Webhook.URL, c.Webhook.Link = "http://localhost/x", "http://127.0.0.1:3377"
		}, ""},
		"no agent": {func(c *approval.Config) { c.AskAgentsUser = []string{""} }, "ask_agents_user: a name is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			c := approval.DefaultConfig()
			test.change(&c)
			err := c.Check()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
