package people

import (
	"bytes"
	"html/template"
	"net/http"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// routes returns the pages of logins.
func (p *People) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", p.serveLogin)
	mux.HandleFunc("GET "+linkPath+"{secret}", p.serveLink)
	mux.HandleFunc("POST "+linkPath+"{secret}", p.serveLink)
	mux.HandleFunc("GET /login/with/{issuer}", p.serveWith)
	mux.HandleFunc("GET "+callbackPath, p.serveCallback)
	mux.HandleFunc("GET /logout", p.serveLogout)
	mux.HandleFunc("POST /logout", p.serveLogout)
	return mux
}

// ServeHTTP serves /login, what is below it, and /logout.
func (p *People) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !usable(p.parts.Origin(r)) {
		p.page(w, http.StatusForbidden, view{
			Title: "Logging in needs HTTPS",
			Text:  "Everybody on the network could read what your browser sends to this address. Use an address that begins with https://. For the owner: if a proxy has the certificate, set auth.url in ferrule.yaml; otherwise docs/how-to/people.md says how.",
		})
		return
	}
	p.mux.ServeHTTP(w, r)
}

// serveLogin says how to log in, or who is logged in.
func (p *People) serveLogin(w http.ResponseWriter, r *http.Request) {
	back := localPath(r.URL.Query().Get("return"))
	who, csrf, ok := p.Current(r)
	switch {
	case ok && back != "":
		http.Redirect(w, r, back, http.StatusSeeOther)
	case ok:
		p.page(w, http.StatusOK, view{Title: "You are logged in", Who: who.Name, Role: roleName(who), CSRF: csrf})
	default:
		p.newVisit(w, r, back)
		v := view{Title: "Log in to Ferrule", Login: true}
		if there, err := p.parts.URL(); err == nil && there != p.parts.Origin(r) {
			v.Here, v.There = p.parts.Origin(r), there
		}
		p.page(w, http.StatusOK, v)
	}
}

// serveLink serves a link. A GET only shows a button, because programs that preview links
// fetch them too. A POST logs in the browser that has the cookie of the page.
func (p *People) serveLink(w http.ResponseWriter, r *http.Request) {
	l, ok := p.findLink(r.PathValue("secret"), false)
	if !ok {
		p.wrongLink(w, r)
		return
	}
	v, visiting := p.visitOf(r)
	if r.Method != http.MethodPost {
		if !visiting {
			v = p.newVisit(w, r, "")
		}
		p.page(w, http.StatusOK, view{Title: "Log in to Ferrule", Who: l.name, Role: string(l.role), CSRF: p.mac("link", v.ID), Button: true})
		return
	}
	if !visiting || !p.fromForm(r, p.mac("link", v.ID)) {
		p.failed(r, "a login that did not come from the page of its link, or without its cookie")
		p.page(w, http.StatusForbidden, view{Title: "You are not logged in", Text: "Your browser did not send the cookie of this page, or took too long. Allow cookies for this address, and open the link again. It can still be used."})
		return
	}
	if l, ok = p.findLink(r.PathValue("secret"), true); !ok {
		p.wrongLink(w, r)
		return
	}
	p.setCookie(w, r, visitCookie, "", -1)
	p.welcome(w, r, l.role.LoggedIn(l.name), l.role, l.version, "with a one-time link", v.Return)
}

func (p *People) wrongLink(w http.ResponseWriter, r *http.Request) {
	if !p.attempt(r) {
		p.tooMany(w)
		return
	}
	p.failed(r, "a login link that is unknown, used or expired")
	p.page(w, http.StatusNotFound, view{Title: "This link cannot be used", Text: "It was used before, is older than five minutes, or belongs to another run or node of the gateway.", Login: true})
}

// tooMany refuses an attempt. It is not recorded: those before it are.
func (p *People) tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "60")
	p.page(w, http.StatusTooManyRequests, view{Title: "Too many attempts", Text: "Try again in a minute."})
}

// failed records an attempt to log in that failed. Nothing is known of who it was.
func (p *People) failed(r *http.Request, message string) {
	p.parts.Record(ferrule.Principal{Role: ferrule.Unverified, Name: "browser"}, ferrule.AccessLogin, mcphttp.Hostname(r.RemoteAddr), message, ferrule.Denied)
}

// welcome begins a session and sends the browser where it wanted to go.
func (p *People) welcome(w http.ResponseWriter, r *http.Request, who ferrule.Principal, role ferrule.PersonRole, version int64, how, back string) {
	p.begin(w, r, who, role, version)
	p.parts.Record(who, ferrule.AccessLogin, mcphttp.Hostname(r.RemoteAddr), "logged in "+how+" as "+string(role), "")
	if back == "" {
		back = "/devices"
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// serveLogout ends the session of a browser.
func (p *People) serveLogout(w http.ResponseWriter, r *http.Request) {
	who, csrf, ok := p.Current(r)
	switch {
	case !ok:
		p.page(w, http.StatusOK, view{Title: "You are not logged in", Login: true})
	case r.Method != http.MethodPost:
		p.page(w, http.StatusOK, view{Title: "Log out of Ferrule", Leave: true, Who: who.Name, Role: roleName(who), CSRF: csrf})
	case !p.CSRF(r):
		p.page(w, http.StatusForbidden, view{Title: "You are still logged in", Leave: true, Text: "The request did not come from a page of the gateway.", Who: who.Name, Role: roleName(who), CSRF: csrf})
	default:
		p.logout(w, r)
		p.parts.Record(who, ferrule.AccessLogout, mcphttp.Hostname(r.RemoteAddr), "logged out", "")
		p.page(w, http.StatusOK, view{Title: "You are logged out", Login: true})
	}
}

// roleName returns the role of a person who has logged in.
func roleName(who ferrule.Principal) string {
	role, _, _ := strings.Cut(who.Groups, ",")
	return role
}

// view is what a page shows.
type view struct {
	Title, Text string
	// Who is the person who is logged in, or would be by the button.
	Who, Role string
	Button    bool
	Leave     bool // whether the page is about logging out
	CSRF      string
	// Login adds how to log in.
	Login   bool
	Issuers []Issuer
	// Here is the address of the page, if links begin with another one: There.
	Here, There string
}

// The pages have no script. Frame adds the head and the style sheet.
var pages = template.Must(template.New("page").Parse(`<div class="card"><div class="pad deci"><h1>{{.Title}}</h1>
{{with .Text}}<p class="muted">{{.}}</p>
{{end}}{{if .Button}}<p>You will be logged in as <strong>{{.Who}}</strong> ({{.Role}}). Go on only if you asked for this link.</p>
<form method="post"><input type="hidden" name="csrf" value="{{.CSRF}}"><button class="btn primary lg wide">Log in as {{.Who}}</button></form>
{{else if .Who}}<p>You are <strong>{{.Who}}</strong> ({{.Role}}).</p>
{{if not .Leave}}<a class="btn primary lg wide" href="/devices">See the devices</a>
{{end}}<form method="post" action="/logout"><input type="hidden" name="csrf" value="{{.CSRF}}"><button class="btn lg wide{{if .Leave}} primary{{end}}">Log out</button></form>
{{if .Leave}}<a class="btn lg wide" href="/devices">Stay logged in</a>
{{end}}{{end}}{{if .Login}}{{range .Issuers}}<a class="btn primary lg wide" href="/login/with/{{.Name}}">Log in with {{.Name}}</a>
{{end}}<p class="muted">{{if .Issuers}}Or ask{{else}}Ask{{end}} the owner for a link: <code>ferrule login --as NAME</code>. It works once, and there is no password.{{if .Here}} The link begins with <code>{{.There}}</code>. You are at <code>{{.Here}}</code>, and a login is for one address: replace that part of the link.{{end}}</p>
{{end}}</div></div>
{{if .Login}}<div class="note"><svg class="i" aria-hidden="true"><use href="#i-term"/></svg><div><strong>On the machine itself?</strong><br><span class="muted">Run <code>ferrule open</code>. It opens this page, logged in. Without a browser there, <code>ferrule login</code> prints a link for this one.</span></div></div>
{{end}}`))

// policy is the Content-Security-Policy of the pages. It has no form-action: browsers would
// apply that to the redirects that follow a login, which may lead to an agent.
const policy = "default-src 'none'; style-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'"

// page writes a page.
func (p *People) page(w http.ResponseWriter, code int, v view) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Cache-Control", "no-store")
	// The address of a link has its secret. With no-referrer, browsers would send the form
	// with the origin null, which the gateway refuses.
	head.Set("Referrer-Policy", "same-origin")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("X-Robots-Tag", "noindex")
	if v.Login {
		v.Issuers = p.parts.Issuers()
	}
	var body, page bytes.Buffer
	err := pages.Execute(&body, v)
	if err == nil {
		err = p.parts.Frame(&page, v.Title, template.HTML(body.String()))
	}
	if err != nil {
		p.parts.Log.Error("a page cannot be made", "err", err)
		code = http.StatusInternalServerError
	}
	w.WriteHeader(code)
	w.Write(page.Bytes())
}
