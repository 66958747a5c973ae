package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// agentsRoutes adds the pages about agents, their tokens, and how to connect one.
func (c *Console) agentsRoutes() {
	c.page("GET /agents", c.agents)
	c.page("GET /agents/view", c.viewAs)
	c.page("GET /agents/tokens/new", c.newToken)
	c.page("POST /agents/tokens/new", c.addToken)
	c.page("GET /agents/tokens/rotate", func(v *visit) error { return c.confirmToken(v, "rotate") })
	c.page("POST /agents/tokens/rotate", c.rotateToken)
	c.page("GET /agents/tokens/revoke", func(v *visit) error { return c.confirmToken(v, "revoke") })
	c.page("POST /agents/tokens/revoke", c.revokeToken)
	c.livePage("GET /live/agents", func(v *visit) (live, error) { return &agentsLive{Console: c, v: v, asked: make(map[string]bool)}, nil })
}

// agentsPage is what the page shows.
type agentsPage struct {
	CSRF    string
	IsOwner bool
	Agents  []agentRow
	Total   int
	Next    string // URL of the next page; empty for the last
	First   bool   // nothing comes before this page
	// Tokens and Logins are for an owner.
	Tokens, Logins []tokenRow
	More           int // tokens and logins that are not shown
	Connect        connectPart
}

// agentRow is an agent in the list.
type agentRow struct {
	api.Agent
	Icon, Let string
	// Token is the credential of the agent, if an owner looks and it is known.
	Token *ferrule.Token
}

// maxProgram limits the name and the version of a program in the list, in characters.
const maxProgram = 60

// Program returns the name that a program gives itself.
func (r agentRow) Program() string { return ferrule.OneLine(r.Client.Name, maxProgram) }

// Version returns the version that a program gives itself.
func (r agentRow) Version() string { return ferrule.OneLine(r.Client.Version, maxProgram) }

// tokenRow is a token or a login.
type tokenRow struct{ ferrule.Token }

// Agent returns how the journal names the agent that has a login.
func (t tokenRow) Agent() string {
	if t.Login == nil {
		return t.Name
	}
	return strings.TrimPrefix(t.Login.Agent, string(ferrule.Agent)+":")
}

// maxTokens is how many tokens and logins the page shows.
const maxTokens = 200

// connectPart is the part of the page with the configuration of agent programs.
type connectPart struct {
	CSRF     string
	IsOwner  bool
	Programs []api.Program
	Chosen   api.Program
	HTTP     bool // it connects over HTTP
	Config   api.ProgramConfig
	Lines    []codeLine
}

func (c *Console) agents(v *visit) error {
	tokens, err := c.tokens(v.ctx(), v)
	if err != nil {
		return err
	}
	p, err := c.listAgents(v.ctx(), v, tokens)
	if err != nil {
		return err
	}
	p.addTokens(tokens)
	if p.Connect, err = c.connect(v); err != nil {
		return err
	}
	if v.isHTMX() && v.r.Header.Get("HX-Target") == "connect" {
		return c.fragment(v, http.StatusOK, "agents-connect", p.Connect)
	}
	live := "/live/agents?" + url.Values{"after": {v.r.FormValue("after")}}.Encode()
	return c.render(v, http.StatusOK, page{Title: "Agents", Section: "agents", Live: live}, "agents", p)
}

// tokens returns the tokens and logins, if the person is an owner. Each time it is a call that
// the journal records.
func (c *Console) tokens(ctx context.Context, v *visit) ([]ferrule.Token, error) {
	if !v.who.Scopes.Has(ferrule.ScopeAdmin) {
		return nil, nil
	}
	out, err := c.api.Tokens(ctx, v.who, builtin.ListTokensInput{})
	return out.Tokens, err
}

// listAgents returns the part of the page that is live.
func (c *Console) listAgents(ctx context.Context, v *visit, tokens []ferrule.Token) (agentsPage, error) {
	after := v.r.FormValue("after")
	out, err := c.api.Agents(ctx, v.who, api.AgentsInput{After: after})
	if err != nil {
		return agentsPage{}, err
	}
	p := agentsPage{CSRF: v.csrf, IsOwner: v.who.Scopes.Has(ferrule.ScopeAdmin), Total: out.Total, First: after == ""}
	if out.Next != "" {
		p.Next = "/agents?" + url.Values{"after": {out.Next}}.Encode()
	}
	for _, a := range out.Agents {
		row := agentRow{Agent: a, Icon: "agents", Let: letIn(a)}
		switch a.Auth {
		case ferrule.AuthEndpoint:
			row.Icon = "toy"
		case ferrule.AuthStdio:
			row.Icon = "term"
		}
		for _, t := range tokens {
			if hasCredential(a) && (tokenRow{t}).Agent() == a.Name {
				row.Token = &t
			}
		}
		p.Agents = append(p.Agents, row)
	}
	return p, nil
}

// hasCredential reports whether an agent was let in by a token or a login of this gateway.
func hasCredential(a api.Agent) bool {
	return a.Auth == ferrule.AuthToken || a.Auth == ferrule.AuthOAuth
}

// letIn says how an agent was let in.
func letIn(a api.Agent) string {
	by := ""
	if a.User != "" {
		by = ", " + a.User
	}
	switch a.Auth {
	case ferrule.AuthToken:
		return "Token"
	case ferrule.AuthOAuth:
		return "Login" + by
	case ferrule.AuthIssuer:
		return "External login" + by
	case ferrule.AuthLoopback:
		return "This machine, no token"
	case ferrule.AuthStdio, ferrule.AuthSocket:
		return "OS user" + by
	case ferrule.AuthEndpoint:
		if strings.HasPrefix(a.Name, "mqtt:") {
			return "MQTT broker"
		}
		return "Endpoint"
	}
	return "Unknown"
}

// addTokens adds the tokens and logins.
func (p *agentsPage) addTokens(all []ferrule.Token) {
	p.More = max(0, len(all)-maxTokens)
	for _, t := range all[:len(all)-p.More] {
		if t.Login != nil {
			p.Logins = append(p.Logins, tokenRow{t})
		} else {
			p.Tokens = append(p.Tokens, tokenRow{t})
		}
	}
}

// connect returns how to connect the program that the URL names, or the first.
func (c *Console) connect(v *visit) (connectPart, error) {
	out, err := c.api.Programs(v.ctx(), v.who, api.ProgramsInput{})
	if err != nil {
		return connectPart{}, err
	}
	p := connectPart{CSRF: v.csrf, IsOwner: v.who.Scopes.Has(ferrule.ScopeAdmin), Programs: out.Programs, HTTP: v.r.FormValue("via") != "stdio"}
	i := slices.IndexFunc(out.Programs, func(o api.Program) bool { return o.Name == v.r.FormValue("program") })
	p.Chosen = out.Programs[max(0, i)]
	if p.HTTP && p.Chosen.HTTP.Why != "" && v.r.FormValue("via") == "" {
		p.HTTP = false
	}
	p.Config = p.Chosen.Stdio
	if p.HTTP {
		p.Config = p.Chosen.HTTP
	}
	p.Lines = code(p.Config.Text, 0, 0)
	return p, nil
}

// agentsLive keeps the list current. Sessions that begin and end are not events, so the list
// is made again each second; it is sent only if it differs.
type agentsLive struct {
	*Console
	v      *visit
	tokens []ferrule.Token
	asked  map[string]bool // agents whose tokens were looked for
}

func (l *agentsLive) watch(changed func(string)) func() {
	ended := make(chan struct{})
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				changed("agents")
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended) }
}

func (l *agentsLive) update(ctx context.Context, _ []string, out *updates) error {
	p, err := l.listAgents(ctx, l.v, l.tokens)
	if err == nil && l.isNew(p) {
		if l.tokens, err = l.Console.tokens(ctx, l.v); err == nil {
			p, err = l.listAgents(ctx, l.v, l.tokens)
		}
	}
	if err != nil {
		return err
	}
	return out.element("agents-list", "agents-list", p)
}

// isNew reports whether the page has an agent whose token was not looked for.
func (l *agentsLive) isNew(p agentsPage) (is bool) {
	for _, row := range p.Agents {
		if hasCredential(row.Agent) && row.Token == nil && !l.asked[row.Name] {
			l.asked[row.Name], is = true, true
		}
	}
	return is
}

// viewPage is what an agent sees.
type viewPage struct {
	api.ViewOutput
	Device string
	Next   string // URL of the next page; empty for the last
	First  bool
}

func (c *Console) viewAs(v *visit) error {
	in := api.ViewInput{As: v.r.FormValue("as"), Device: v.r.FormValue("device"), After: v.r.FormValue("after")}
	out, err := c.api.ViewAs(v.ctx(), v.who, in)
	if err != nil {
		return err
	}
	p := viewPage{ViewOutput: out, Device: in.Device, First: in.After == ""}
	if out.Next != "" {
		p.Next = "/agents/view?" + url.Values{"as": {in.As}, "device": {in.Device}, "after": {out.Next}}.Encode()
	}
	return c.render(v, http.StatusOK, page{Title: "View as " + cmp.Or(out.Name, "an agent"), Section: "agents"}, "agents-view", p)
}
