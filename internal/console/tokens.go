package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// scopeChoice is a set of scopes that a new token can have.
type scopeChoice struct {
	Scope, Title, Text string
	Chosen             bool
}

// expiryChoice is how long a new token can be good for.
type expiryChoice struct {
	For, Title string
	Chosen     bool
}

// tokenForm is the form for a new token.
type tokenForm struct {
	CSRF          string
	Name, Devices string
	Program       string // that the token is for; may be empty
	Scopes        []scopeChoice
	Expires       []expiryChoice
	Failed        *ferrule.Error // why it was not made
}

func newTokenForm(v *visit) tokenForm {
	f := tokenForm{
		CSRF: v.csrf, Name: v.r.FormValue("name"), Devices: v.r.FormValue("devices"), Program: v.r.FormValue("program"),
		Scopes: []scopeChoice{
			{"read", "Look", "It may read values and lists.", false},
			{"change", "Change", "Also what changes something.", false},
			{"endanger", "Everything", "Also what endangers something. The rules may still ask a person.", false},
			{"metrics", "Metrics", "Only the metrics of the gateway, for Prometheus.", false},
			{"admin", "Administer", "Also the gateway's tools for people.", false},
		},
		Expires: []expiryChoice{{"1d", "1 day", false}, {"30d", "30 days", false}, {"90d", "90 days", false}, {"365d", "1 year", false}, {"", "No end", false}},
	}
	if f.Name == "" {
		f.Name = f.Program
	}
	scope, expires := "endanger", "90d"
	if v.r.Method == http.MethodPost {
		scope, expires = v.r.PostFormValue("scope"), v.r.PostFormValue("expires")
	}
	for i := range f.Scopes {
		f.Scopes[i].Chosen = f.Scopes[i].Scope == scope
	}
	for i := range f.Expires {
		f.Expires[i].Chosen = f.Expires[i].For == expires
	}
	return f
}

func (c *Console) newToken(v *visit) error {
	if err := api.Allowed(v.who, ferrule.ScopeAdmin); err != nil {
		return err
	}
	return c.render(v, http.StatusOK, page{Title: "New token", Section: "agents"}, "token-new", newTokenForm(v))
}

// addToken makes a token and shows its secret, once. The answer is not a redirect: the secret
// must not be in a URL.
func (c *Console) addToken(v *visit) error {
	in := builtin.AddTokenInput{Name: strings.TrimSpace(v.r.PostFormValue("name")), Scopes: []string{v.r.PostFormValue("scope")}}
	in.Devices = strings.FieldsFunc(v.r.PostFormValue("devices"), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })
	if text := v.r.PostFormValue("expires"); text != "" {
		length, err := ferrule.ParseDuration(text)
		if err != nil || length <= 0 {
			return ferrule.Errorf(ferrule.Invalid, "expires must be a time such as 90d, got %q", ferrule.Clean(text, ferrule.MaxWord))
		}
		in.Expires = ferrule.Duration(length)
	}
	out, err := c.api.AddToken(v.ctx(), v.who, in)
	if err != nil && ferrule.AsError(err).Code == ferrule.Invalid {
		f := newTokenForm(v)
		f.Failed = ferrule.AsError(err)
		return c.render(v, http.StatusBadRequest, page{Title: "New token", Section: "agents"}, "token-new", f)
	}
	if err != nil {
		return err
	}
	return c.showSecret(v, out, "New token")
}

// tokenMade is a secret that is shown once.
type tokenMade struct {
	builtin.TokenOutput
	Title   string
	Program *api.Program // that the token is for; nil if it is not known
	Lines   []codeLine
}

func (c *Console) showSecret(v *visit, out builtin.TokenOutput, title string) error {
	p := tokenMade{TokenOutput: out, Title: title}
	all, err := c.api.ProgramsWith(v.who, out.Secret)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all.Programs, func(o api.Program) bool { return o.Name == v.r.PostFormValue("program") }); i >= 0 && all.Programs[i].HTTP.Text != "" {
		p.Program = &all.Programs[i]
		p.Lines = code(p.Program.HTTP.Text, 0, 0)
	}
	return c.render(v, http.StatusOK, page{Title: title, Section: "agents"}, "token-made", p)
}

// tokenConfirm asks before a token is changed.
type tokenConfirm struct {
	CSRF, Do string
	tokenRow
}

func (c *Console) confirmToken(v *visit, do string) error {
	out, err := c.api.Tokens(v.ctx(), v.who, builtin.ListTokensInput{})
	if err != nil {
		return err
	}
	name := v.r.FormValue("name")
	i := slices.IndexFunc(out.Tokens, func(t ferrule.Token) bool { return t.Name == name && !t.Config })
	if i < 0 {
		return ferrule.Errorf(ferrule.NotFound, "there is no token or login %q that can be changed here", ferrule.Clean(name, ferrule.MaxWord)).
			WithHint("tokens in ferrule.yaml are changed there")
	}
	title := capital(do) + " " + out.Tokens[i].Name
	return c.render(v, http.StatusOK, page{Title: title, Section: "agents"}, "token-"+do, tokenConfirm{v.csrf, do, tokenRow{out.Tokens[i]}})
}

func (c *Console) rotateToken(v *visit) error {
	out, err := c.api.RotateToken(v.ctx(), v.who, builtin.RotateTokenInput{Name: v.r.PostFormValue("name")})
	if err != nil {
		return err
	}
	return c.showSecret(v, out, "Another secret")
}

func (c *Console) revokeToken(v *visit) error {
	if _, err := c.api.RevokeToken(v.ctx(), v.who, builtin.RevokeTokenInput{Name: v.r.PostFormValue("name")}); err != nil {
		return err
	}
	return v.redirect("/agents#tokens")
}
