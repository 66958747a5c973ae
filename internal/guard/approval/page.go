package approval

import (
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// pagePath is the path of the pages that links lead to. The token follows.
const pagePath = "/approvals/"

// linkStanding is how long the page can allow the same call.
const linkStanding = 10 * time.Minute

// wrongTokens is how many wrong tokens are looked at. More are refused without a word.
var wrongTokens = ratelimit.PerMinute(60)

// linkPerson answers through a link: the token is all that is known of that person.
var linkPerson = ferrule.Principal{Role: ferrule.Person, Name: "link", Auth: ferrule.AuthLink}

// ServeHTTP serves the page of a link, at pagePath. A GET only shows the request, because
// programs that preview links fetch them too. A POST answers it.
func (a *Approvals) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Cache-Control", "no-store")
	// The address has the token. With no-referrer, browsers would send the form with the
	// origin null, which the gateway refuses.
	head.Set("Referrer-Policy", "same-origin")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Robots-Tag", "noindex")
	token := strings.TrimPrefix(req.URL.Path, pagePath)
	view, err := a.findLink(token)
	if err != nil {
		page(w, http.StatusTooManyRequests, "Too many wrong links", "<p>Try again in a minute.</p>")
		return
	}
	switch {
	case view == nil:
		page(w, http.StatusNotFound, "This link cannot be used", "<p>It was used before, has expired, or the call has ended. Run <code>ferrule approvals</code> to see what waits.</p>")
	case req.Method == http.MethodGet || req.Method == http.MethodHead:
		page(w, http.StatusOK, "A call waits for your approval", rows(view)+form)
	case req.Method == http.MethodPost:
		a.servePost(w, req, token)
	default:
		head.Set("Allow", "GET, HEAD, POST")
		page(w, http.StatusMethodNotAllowed, "Not supported", "")
	}
}

func (a *Approvals) servePost(w http.ResponseWriter, req *http.Request, token string) {
	req.Body = http.MaxBytesReader(w, req.Body, 4<<10)
	if err := req.ParseForm(); err != nil {
		page(w, http.StatusBadRequest, "The answer cannot be read", "")
		return
	}
	answer, known := map[string]Answer{"allow": {Allow: true}, "allow_for": {Allow: true, For: linkStanding}, "deny": {}}[req.PostForm.Get("answer")]
	if !known {
		page(w, http.StatusBadRequest, "The answer must be allow, allow_for or deny", "")
		return
	}
	known, err := a.answerLink(token, answer)
	switch {
	case !known: // answered meanwhile
		page(w, http.StatusNotFound, "This link cannot be used", "<p>The call has been answered or has ended.</p>")
	case err != nil:
		page(w, http.StatusConflict, "Nothing was changed", "<p>"+html.EscapeString(ferrule.AsError(err).Message)+"</p>")
	default:
		page(w, http.StatusOK, map[bool]string{true: "Allowed", false: "Denied"}[answer.Allow], "<p>You can close this page.</p>")
	}
}

// answerLink answers the request that a token belongs to, if there is one.
func (a *Approvals) answerLink(token string, answer Answer) (known bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.byLink(token)
	if r == nil {
		return false, nil
	}
	_, err = a.answer(r, linkPerson.String(), answer)
	return true, err
}

// findLink returns the request that a token belongs to, or nil if there is none. The
// error says that there were too many wrong tokens; a right one always works.
func (a *Approvals) findLink(token string) (*ferrule.Approval, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.byLink(token); r != nil {
		view := a.view(r)
		return &view, nil
	}
	if !a.wrong.Allow(wrongTokens, time.Now()) {
		return nil, fmt.Errorf("too many wrong tokens")
	}
	return nil, nil
}

// byLink returns the waiting request with a token. It is called with mu held.
func (a *Approvals) byLink(token string) *request {
	if token == "" {
		return nil
	}
	now, version, sum := time.Now(), a.parts.Version(), hash([]byte(token))
	for _, r := range a.byKey {
		if r.Link == sum && a.sweep(r, now, version) && r.state == waiting {
			return r
		}
	}
	return nil
}

// form has the answers. Its address is that of the page.
const form = `<form method="post"><p>
<button name="answer" value="allow">Allow once</button>
<button name="answer" value="allow_for">Allow the same for 10 minutes</button>
<button name="answer" value="deny">Deny</button>
</p></form>`

// rows shows a request. Everything in it is escaped.
func rows(v *ferrule.Approval) string {
	var b strings.Builder
	b.WriteString("<dl>")
	for _, row := range v.Describe() {
		fmt.Fprintf(&b, "<dt>%s</dt><dd>%s</dd>\n", html.EscapeString(row[0]), html.EscapeString(row[1]))
	}
	b.WriteString("</dl>")
	return b.String()
}

func page(w http.ResponseWriter, code int, title, body string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%s</title></head><body><h1>%s</h1>
%s</body></html>
`, html.EscapeString(title), html.EscapeString(title), body)
}
