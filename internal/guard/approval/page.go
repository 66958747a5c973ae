package approval

import (
	"context"
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

// People are the people who have logged in with a browser.
type People interface {
	// Current returns the person who sends a request, and the CSRF token for forms.
	Current(r *http.Request) (who ferrule.Principal, csrf string, ok bool)
	// Session does the same, or answers the request with the login page.
	Session(w http.ResponseWriter, r *http.Request) (who ferrule.Principal, csrf string, ok bool)
	// CSRF reports whether a request comes from a form of the person's session.
	CSRF(r *http.Request) bool
}

// Pages serves the pages on which people answer with a browser: /approvals for people who
// have logged in, and one page for each link.
type Pages struct {
	Approvals *Approvals
	People    People
	// List returns the requests of all nodes, and the nodes that did not answer.
	List func(ctx context.Context, who ferrule.Principal) (all []ferrule.Approval, silent []string, err error)
	// Answer answers a request on any node.
	Answer func(ctx context.Context, who ferrule.Principal, id string, answer Answer) error
}

// ServeHTTP serves /approvals, and links below it.
func (p *Pages) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Cache-Control", "no-store")
	// The address of a link has its token. With no-referrer, browsers would send the form
	// with the origin null, which the gateway refuses.
	head.Set("Referrer-Policy", "same-origin")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Robots-Tag", "noindex")
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		head.Set("Allow", "GET, HEAD, POST")
		page(w, http.StatusMethodNotAllowed, "Not supported", "")
		return
	}
	if token, ok := strings.CutPrefix(req.URL.Path, pagePath); ok && token != "" {
		p.serveLink(w, req, token)
		return
	}
	p.serveList(w, req)
}

// serveLink serves the page of a link. A GET only shows the request, because programs that
// preview links fetch them too. A POST answers it: the token is the credential, unless
// somebody has logged in. Then it is that person who answers, with the rights of a role.
func (p *Pages) serveLink(w http.ResponseWriter, req *http.Request, token string) {
	view, err := p.Approvals.findLink(token)
	if err != nil {
		page(w, http.StatusTooManyRequests, "Too many wrong links", "<p>Try again in a minute.</p>")
		return
	}
	if view == nil {
		page(w, http.StatusNotFound, "This link cannot be used", "<p>It was used before, has expired, or the call has ended. Run <code>ferrule approvals</code> to see what waits.</p>")
		return
	}
	who, csrf, loggedIn := p.People.Current(req)
	if loggedIn && !mayAnswer(w, who) {
		return
	}
	if req.Method != http.MethodPost {
		page(w, http.StatusOK, "A call waits for your approval", rows(view)+form("", view.ID, who, csrf))
		return
	}
	answer, ok := readAnswer(w, req)
	switch {
	case !ok:
	case loggedIn && !p.People.CSRF(req):
		forged(w)
	case loggedIn:
		answered(w, answer, p.Answer(req.Context(), who, view.ID, answer), "You can close this page.")
	default:
		known, err := p.Approvals.answerLink(token, answer)
		if !known { // answered meanwhile
			page(w, http.StatusNotFound, "This link cannot be used", "<p>The call has been answered or has ended.</p>")
			return
		}
		answered(w, answer, err, "You can close this page.")
	}
}

// serveList lists what waits, for people who may answer.
func (p *Pages) serveList(w http.ResponseWriter, req *http.Request) {
	who, csrf, ok := p.People.Session(w, req)
	if !ok || !mayAnswer(w, who) {
		return
	}
	if req.Method == http.MethodPost {
		answer, ok := readAnswer(w, req)
		switch {
		case !ok:
		case !p.People.CSRF(req):
			forged(w)
		default:
			answered(w, answer, p.Answer(req.Context(), who, req.PostForm.Get("id"), answer), `<a href="/approvals">See what else waits</a>`)
		}
		return
	}
	all, silent, err := p.List(req.Context(), who)
	if err != nil {
		page(w, http.StatusForbidden, "The requests cannot be listed", "<p>"+html.EscapeString(ferrule.AsError(err).Message)+"</p>")
		return
	}
	var b strings.Builder
	waits := 0
	for i := range all {
		if all[i].State == ferrule.ApprovalWaiting {
			waits++
			b.WriteString(rows(&all[i]) + form("/approvals", all[i].ID, who, csrf))
		}
	}
	if waits == 0 {
		b.WriteString("<p>No call waits for approval.</p>")
	}
	if len(silent) > 0 {
		b.WriteString("<p>These nodes did not answer, and their requests are not listed: " + html.EscapeString(ferrule.Clean(strings.Join(silent, ", "), ferrule.MaxReason)) + "</p>")
	}
	page(w, http.StatusOK, "Calls that wait for approval", b.String())
}

// mayAnswer reports whether a person has the rights to answer. If not, it says so.
func mayAnswer(w http.ResponseWriter, who ferrule.Principal) bool {
	if who.Scopes.Has(ferrule.ScopeEndanger) {
		return true
	}
	page(w, http.StatusForbidden, "You cannot answer", "<p>You are logged in as "+html.EscapeString(who.Name)+", who may look but not approve. Ask an owner for the role operator: <code>ferrule people role NAME operator</code>.</p>")
	return false
}

// readAnswer reads the answer of a form. If there is none, it says so.
func readAnswer(w http.ResponseWriter, req *http.Request) (answer Answer, ok bool) {
	req.Body = http.MaxBytesReader(w, req.Body, 4<<10)
	if err := req.ParseForm(); err != nil {
		page(w, http.StatusBadRequest, "The answer cannot be read", "")
		return answer, false
	}
	answer, ok = map[string]Answer{"allow": {Allow: true}, "allow_for": {Allow: true, For: linkStanding}, "deny": {}}[req.PostForm.Get("answer")]
	if !ok {
		page(w, http.StatusBadRequest, "The answer must be allow, allow_for or deny", "")
	}
	return answer, ok
}

// forged refuses an answer that did not come from a page of the person's session.
func forged(w http.ResponseWriter) {
	page(w, http.StatusForbidden, "Nothing was changed", "<p>The answer did not come from a page of the gateway that was made for you. Open the page again, and answer there.</p>")
}

// answered says what became of an answer. Next is HTML.
func answered(w http.ResponseWriter, answer Answer, err error, next string) {
	if err != nil {
		page(w, http.StatusConflict, "Nothing was changed", "<p>"+html.EscapeString(ferrule.AsError(err).Message)+"</p><p>"+next+"</p>")
		return
	}
	page(w, http.StatusOK, map[bool]string{true: "Allowed", false: "Denied"}[answer.Allow], "<p>"+next+"</p>")
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

// form has the answers. Without an action, its address is that of the page.
func form(action, id string, who ferrule.Principal, csrf string) string {
	var b strings.Builder
	b.WriteString(`<form method="post"`)
	if action != "" {
		fmt.Fprintf(&b, ` action="%s"`, html.EscapeString(action))
	}
	fmt.Fprintf(&b, `><input type="hidden" name="id" value="%s">`, html.EscapeString(id))
	if csrf != "" {
		fmt.Fprintf(&b, `<input type="hidden" name="csrf" value="%s"><p>You answer as %s.</p>`, html.EscapeString(csrf), html.EscapeString(who.Name))
	}
	b.WriteString(`<p>
<button name="answer" value="allow">Allow once</button>
<button name="answer" value="allow_for">Allow the same for 10 minutes</button>
<button name="answer" value="deny">Deny</button>
</p></form>`)
	return b.String()
}

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
