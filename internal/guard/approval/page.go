package approval

import (
	"context"
	"fmt"
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
	// CSRF reports whether a request comes from a form of the person's session.
	CSRF(r *http.Request) bool
}

// Page is what the page of a link shows.
type Page struct {
	Title, Text string
	// Approval is the request; nil if there is none to answer.
	Approval *ferrule.Approval
	// Who has logged in, and CSRF is the token for the form; both may be empty.
	Who, CSRF string
	// Login adds a link to all that wait, for people who log in.
	Login bool
}

// Pages serves the page of each link, on which people answer with a browser. The console has
// a page for people who have logged in.
type Pages struct {
	Approvals *Approvals
	People    People
	// Answer answers a request on any node.
	Answer func(ctx context.Context, who ferrule.Principal, id string, answer Answer) error
	// Draw writes a page. Its form must have the fields answer, id and csrf, and no action.
	Draw func(w http.ResponseWriter, status int, p Page) error
}

// ServeHTTP serves what is below /approvals/.
func (p *Pages) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Cache-Control", "no-store")
	// The address of a link has its token. With no-referrer, browsers would send the form
	// with the origin null, which the gateway refuses.
	head.Set("Referrer-Policy", "same-origin")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("X-Robots-Tag", "noindex")
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		p.serveLink(w, req, strings.TrimPrefix(req.URL.Path, pagePath))
	default:
		head.Set("Allow", "GET, HEAD, POST")
		p.draw(w, http.StatusMethodNotAllowed, Page{Title: "Not supported"})
	}
}

// draw writes a page.
func (p *Pages) draw(w http.ResponseWriter, status int, page Page) {
	if err := p.Draw(w, status, page); err != nil {
		p.Approvals.parts.Log.Error("a page cannot be made", "err", err)
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
	}
}

// serveLink serves the page of a link. A GET only shows the request, because programs that
// preview links fetch them too. A POST answers it: the token is the credential, unless
// somebody has logged in. Then it is that person who answers, with the rights of a role.
func (p *Pages) serveLink(w http.ResponseWriter, req *http.Request, token string) {
	view, err := p.Approvals.findLink(token)
	if err != nil {
		p.draw(w, http.StatusTooManyRequests, Page{Title: "Too many wrong links", Text: "Try again in a minute."})
		return
	}
	if view == nil {
		p.draw(w, http.StatusNotFound, Page{Title: "This link cannot be used", Text: "It was used before, has expired, or the call has ended. To see what waits, log in, or run `ferrule approvals`.", Login: true})
		return
	}
	who, csrf, loggedIn := p.People.Current(req)
	if loggedIn && !who.Scopes.Has(ferrule.ScopeEndanger) {
		p.draw(w, http.StatusForbidden, Page{Title: "You cannot answer", Text: "You are logged in as " + who.Name + ", who may look but not approve. Ask an owner for the role operator: `ferrule people role NAME operator`."})
		return
	}
	if req.Method != http.MethodPost {
		p.draw(w, http.StatusOK, Page{Title: "A call waits for your approval", Approval: view, Who: who.Name, CSRF: csrf})
		return
	}
	answer, ok := readAnswer(w, req)
	switch {
	case !ok:
		p.draw(w, http.StatusBadRequest, Page{Title: "The answer must be allow, allow_for or deny"})
	case loggedIn && !p.People.CSRF(req):
		p.draw(w, http.StatusForbidden, Page{Title: "Nothing was changed", Text: "The answer did not come from a page of the gateway that was made for you. Open the link again, and answer there."})
	case loggedIn:
		p.answered(w, answer, p.Answer(req.Context(), who, view.ID, answer))
	default:
		known, err := p.Approvals.answerLink(token, answer)
		if !known { // answered meanwhile
			p.draw(w, http.StatusNotFound, Page{Title: "This link cannot be used", Text: "The call has been answered or has ended.", Login: true})
			return
		}
		p.answered(w, answer, err)
	}
}

// readAnswer reads the answer of a form, if there is one.
func readAnswer(w http.ResponseWriter, req *http.Request) (answer Answer, ok bool) {
	req.Body = http.MaxBytesReader(w, req.Body, 4<<10)
	if req.ParseForm() != nil {
		return answer, false
	}
	answer, ok = map[string]Answer{"allow": {Allow: true}, "allow_for": {Allow: true, For: linkStanding}, "deny": {}}[req.PostForm.Get("answer")]
	return answer, ok
}

// answered says what became of an answer.
func (p *Pages) answered(w http.ResponseWriter, answer Answer, err error) {
	if err != nil {
		p.draw(w, http.StatusConflict, Page{Title: "Nothing was changed", Text: ferrule.AsError(err).Message})
		return
	}
	p.draw(w, http.StatusOK, Page{Title: map[bool]string{true: "Allowed", false: "Denied"}[answer.Allow], Text: "You can close this page."})
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
