package oauth

import (
	"bytes"
	"html/template"
	"net/http"
	"net/url"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// protect sets the headers of all pages. There is deliberately no form-action: Chromium
// applies it also to where the answer to the form leads, which is the agent's program.
func protect(w http.ResponseWriter) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Cache-Control", "no-store")
	// Other sites see nothing. With no-referrer, browsers would send the form with the origin
	// null.
	head.Set("Referrer-Policy", "same-origin")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Robots-Tag", "noindex")
}

// problem is a page that says what went wrong.
type problem struct {
	Text, Next string
	// Link leads back to the program, at Host.
	Link, Host string
}

// consentPage is the content of the consent page.
type consentPage struct {
	Problem string
	// Host is that of the program's document; Name is what the program calls itself.
	Host, Name string
	Registered bool   // by the owner
	Goes       string // where the code goes
	Local      bool   // to a program on the person's machine
	Person     string
	CSRF       string
	Scopes     []scopeChoice
	Device     string // the only device; empty if they can be chosen
	Limited    string // the devices that the person can reach; empty for all
	Devices    []Device
	Hidden     int // devices that are not shown
}

type scopeChoice struct {
	Name, Text string
	Chosen     bool
}

// scopeTexts explain the scopes, in the order of the page.
var scopeTexts = []struct{ name, text string }{
	{"read", "See devices and read their values"},
	{"change", "Change something, such as switching a lamp"},
	{"endanger", "Do what can be dangerous, such as opening a lock or heating"},
	{"metrics", "Read the metrics of the gateway"},
	{"admin", "Manage the gateway: adopt, release and retry devices, list and revoke tokens"},
}

// maxShown limits the devices on the page.
const maxShown = 500

// showConsent shows the page that asks a person. It is never skipped: any program on a
// machine can claim to be another one.
func (s *Server) showConsent(w http.ResponseWriter, r *http.Request, status int, who ferrule.Principal, csrf string, req request, problem string) {
	c := req.client
	p := consentPage{
		Problem: problem, Host: c.host, Name: c.Name, Registered: c.confidential, Goes: hostText(req.redirect), Local: onThisMachine(req.redirect),
		Person: who.Name, CSRF: csrf, Device: req.device, Limited: who.Devices,
	}
	possible := req.asked.And(who.Scopes)
	for _, one := range scopeTexts {
		scope, _ := ferrule.ParseScopes([]string{one.name})
		if possible.Has(scope) {
			p.Scopes = append(p.Scopes, scopeChoice{one.name, one.text, one.name != "admin"})
		}
	}
	if req.device == "" {
		p.Devices = s.parts.Devices(who)
		p.Hidden = max(0, len(p.Devices)-maxShown)
		p.Devices = p.Devices[:len(p.Devices)-p.Hidden]
	}
	s.render(w, status, "Let this program use your devices?", "consent", p)
}

// page shows a problem.
func (s *Server) page(w http.ResponseWriter, status int, p problem) {
	s.render(w, status, "This login cannot go on", "problem", p)
}

// render writes a page. Parts.Frame adds the head and the style sheet.
func (s *Server) render(w http.ResponseWriter, status int, title, name string, data any) {
	var body, page bytes.Buffer
	err := pages.ExecuteTemplate(&body, name, data)
	if err == nil {
		err = s.parts.Frame(&page, title, template.HTML(body.String()))
	}
	if err != nil {
		s.parts.Log.Error("a page cannot be made", "err", err)
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(page.Bytes())
}

// hostText returns the host and port of a redirect address, for people.
func hostText(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	if uri == cursorRedirect {
		return "Cursor"
	}
	return u.Host
}

var pages = template.Must(template.New("").Parse(`
{{define "problem"}}<div class="card"><div class="pad deci"><h1>This login cannot go on</h1><p>{{.Text}}</p>
{{with .Next}}<p class="muted">{{.}}</p>{{end}}
{{with .Link}}<p><a rel="noreferrer" href="{{.}}">Go back to {{$.Host}}</a></p>{{end}}</div></div>
{{end}}

{{define "consent"}}<div class="card"><form class="deci consent" method="post"><h1>Let this program use your devices?</h1>
{{with .Problem}}<div class="out bad" role="alert"><svg class="i bad" aria-hidden="true"><use href="#i-danger"/></svg><div>{{.}}.</div></div>{{end}}
{{if .Host}}<p>The program of <strong>{{.Host}}</strong>{{with .Name}}, which calls itself “{{.}}”,{{end}} asks for access.</p>
{{else if .Registered}}<p><strong>{{.Name}}</strong>, which the owner registered, asks for access.</p>
{{else}}<p>A program that <strong>nobody has verified</strong>{{with .Name}} and that calls itself “{{.}}”{{end}} asks for access.</p>
{{end}}<p>{{if .Local}}If you allow it, you are sent to a program on <strong>your own computer</strong> ({{.Goes}}). {{else}}If you allow it, you are sent to <strong>{{.Goes}}</strong>. {{end}}Allow it only if you have just started this login yourself.</p>
<input type="hidden" name="csrf" value="{{.CSRF}}">
<fieldset><legend>It may</legend>
{{range .Scopes}}<label><input type="checkbox" name="scope" value="{{.Name}}"{{if .Chosen}} checked{{end}}> <span>{{.Text}} <code>{{.Name}}</code></span></label>
{{else}}<p>Nothing of what it asks for: your role does not permit it.</p>
{{end}}<p class="small muted"><code>endanger</code> includes <code>change</code>, which includes <code>read</code>. The rules of the gateway may permit less.</p>
</fieldset>
<fieldset><legend>On</legend>
{{if .Device}}<p>only the device <strong>{{.Device}}</strong></p>
{{else}}<label><input type="radio" name="devices" value="all" checked> <span>{{with .Limited}}all devices that you can use: {{.}}{{else}}all devices, also those that are added later{{end}}</span></label>
<label><input type="radio" name="devices" value="some"> <span>only these:</span></label>
<ul>{{range .Devices}}<li><label><input type="checkbox" name="device" value="{{.ID}}"> <span><code>{{.ID}}</code>{{with .Text}} {{.}}{{end}}</span></label></li>
{{end}}</ul>
{{with .Hidden}}<p class="small muted">{{.}} more devices are not shown.</p>
{{end}}{{end}}</fieldset>
<div class="bar"><button class="btn primary lg" name="answer" value="allow">Allow</button><button class="btn lg" name="answer" value="deny">Deny</button></div>
</form></div>
<p class="small muted">You are logged in as {{.Person}}. To see and end such logins, run <code>ferrule token list</code>.</p>
{{end}}
`))
