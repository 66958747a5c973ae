package people

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// Issuer is an external issuer that people can log in through.
type Issuer struct {
	Name  string
	Login Login
}

// Login is the way of a login through an issuer.
type Login interface {
	// Begin returns the page of the issuer that a browser is sent to, or "" if the issuer
	// cannot be reached.
	Begin(redirect, state, nonce, verifier string) (url string)
	// Code returns the code that a browser came back with, if the answer is from this issuer
	// and for this state.
	Code(ctx context.Context, answer url.Values, state string) (code string, err error)
	// Finish returns who has logged in there.
	Finish(ctx context.Context, code, redirect, nonce, verifier string) (Identity, error)
}

// Identity is a person as an issuer knows them.
type Identity struct {
	// Issuer is the name of the issuer, and Subject identifies the person there.
	Issuer, Subject string
	// Name is how the person is called; it may be empty and proves nothing.
	Name string
	// Groups are the groups of the person, as they are called here.
	Groups []string
}

// callbackPath is where an issuer sends browsers back to.
const callbackPath = "/login/callback"

// finishTime limits how long an issuer may take.
const finishTime = 15 * time.Second

// issuer returns an issuer by its name.
func (p *People) issuer(name string) (Issuer, bool) {
	for _, i := range p.parts.Issuers() {
		if i.Name == name {
			return i, true
		}
	}
	return Issuer{}, false
}

// state returns what an issuer has to send back with a browser. It names the issuer, and is
// good for one visit.
func (p *People) state(issuer string, v visit) string {
	return issuer + "." + p.mac("state", issuer, v.ID)
}

// serveWith sends a browser to an issuer.
func (p *People) serveWith(w http.ResponseWriter, r *http.Request) {
	issuer, ok := p.issuer(r.PathValue("issuer"))
	if !ok {
		p.page(w, http.StatusNotFound, view{Title: "There is no such login", Login: true})
		return
	}
	before, _ := p.visitOf(r)
	v := p.newVisit(w, r, before.Return)
	to := issuer.Login.Begin(p.parts.Origin(r)+callbackPath, p.state(issuer.Name, v), p.mac("nonce", v.ID), p.mac("verifier", v.ID))
	if to == "" {
		p.page(w, http.StatusBadGateway, view{Title: "Login through " + issuer.Name + " does not work now", Text: "The gateway cannot reach it. Try again in a minute, or log in with a link.", Login: true})
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// serveCallback logs a person in when the browser is back from an issuer.
func (p *People) serveCallback(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	name, _, _ := strings.Cut(q.Get("state"), ".")
	v, ok := p.visitOf(r)
	issuer, known := p.issuer(name)
	if !ok || !known || !equal(q.Get("state"), p.state(name, v)) {
		if !p.attempt(r) {
			p.tooMany(w)
			return
		}
		p.failed(r, "a login through an issuer that this browser did not begin")
		p.page(w, http.StatusForbidden, view{Title: "You are not logged in", Text: "This browser did not begin this login, or it took too long. Begin again.", Login: true})
		return
	}
	if p.asks.Take(mcphttp.HostOf(r.RemoteAddr), time.Now()) != 0 {
		p.tooMany(w)
		return
	}
	back := v.Return
	p.setCookie(w, r, visitCookie, "", -1) // each visit has one answer
	refuse := func(why, text string) {
		p.failed(r, why)
		p.page(w, http.StatusForbidden, view{Title: "You are not logged in", Text: text, Login: true})
	}
	ctx, cancel := context.WithTimeout(r.Context(), finishTime)
	defer cancel()
	var who Identity
	code, err := issuer.Login.Code(ctx, q, p.state(name, v))
	if err == nil {
		who, err = issuer.Login.Finish(ctx, code, p.parts.Origin(r)+callbackPath, p.mac("nonce", v.ID), p.mac("verifier", v.ID))
	}
	if err != nil {
		p.parts.Log.Warn("a login through an issuer failed", "issuer", name, "err", err)
		refuse("a login through "+name+" failed", name+" did not log you in. Begin again. If it happens again, the log of the gateway says why.")
		return
	}
	person := name + ":" + url.PathEscape(who.Subject)
	role, groups := roleOf(who.Groups)
	switch {
	case who.Subject == "" || len(person) > maxName:
		refuse(name+" gave no usable name of a person", name+" gave no usable name of you.")
		return
	case role == "":
		refuse(ferrule.Clean(person, ferrule.MaxWord)+" has no group that is a role",
			fmt.Sprintf("%s knows you as %s, but none of your groups has a role in this gateway. Its owner can give one to a group of yours: auth.issuers.groups in ferrule.yaml maps groups to viewer, operator or owner.",
				name, ferrule.Clean(strings.TrimSpace(who.Name+" ("+who.Subject+")"), ferrule.MaxWord)))
		return
	}
	p.mu.Lock()
	version := p.version(person)
	p.mu.Unlock()
	p.welcome(w, r, role.LoggedIn(person, groups...), role, version, "through "+name, back)
}

// roleOf returns the role with the most rights among groups, and the groups that are not
// roles.
func roleOf(all []string) (role ferrule.PersonRole, groups []string) {
	for _, name := range all {
		r := ferrule.PersonRole(name)
		switch {
		case r.Rank() > role.Rank():
			role = r
		case r.Rank() == 0 && name != "" && !strings.Contains(name, ","):
			groups = append(groups, name)
		}
	}
	return role, groups
}
