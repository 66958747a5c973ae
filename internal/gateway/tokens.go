package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/oauth"
	"github.com/ferrulehq/ferrule/internal/guard/tokens"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// tokensFile has the managed tokens, in the data directory.
const tokensFile = "tokens"

// DefaultOverlap is how long the old secret of a rotated token is accepted.
const DefaultOverlap = 10 * time.Minute

// openTokens opens the tokens of the configuration and those that people manage.
func (g *Gateway) openTokens() (err error) {
	g.loopback = newLoopback(g.parts.Config.Agents.OpenLoopback)
	if g.tokens, err = g.parts.Config.Tokens(); err != nil {
		return err
	}
	parts := tokens.Parts{File: filepath.Join(g.parts.Data, tokensFile), Taken: g.tokens.Has, Shared: g.shared(), Record: g.recordAccess, Log: g.parts.Log}
	if g.Tokens, err = tokens.Open(parts); err != nil {
		return err
	}
	g.setTokenIDs(g.tokens)
	g.Tokens.Connect()
	return nil
}

// setTokenIDs gives configured tokens their IDs.
func (g *Gateway) setTokenIDs(all *identity.Tokens) {
	if all.Len() > 0 { // otherwise there is no need for a key
		all.SetIDs(g.Tokens.ConfigIDKey())
	}
}

// warnNoTokens says what to do if nobody can call over HTTP.
func (g *Gateway) warnNoTokens() {
	_, open := g.loopback.Open()
	if auth := g.parts.Config.Auth; g.web != nil && !open && g.tokens.Len()+g.Tokens.Len() == 0 && !auth.Server.Enabled && len(auth.Issuers) == 0 {
		g.parts.Log.Info("agents need a token over HTTP, and there is none: run `ferrule setup CLIENT --http` to set up an agent program, or `ferrule token add NAME`")
	}
}

// warnTokens warns about tokens that others can read, and about names that are used twice.
func (g *Gateway) warnTokens() {
	if g.web != nil && g.certificate == nil && config.OnNetwork(g.web.Addr().String()) {
		g.parts.Log.Warn("everybody on the network can read the tokens, because there is no TLS; run `ferrule tls init`, and set tls in ferrule.yaml", "listen", g.web.Addr())
	}
	for _, t := range g.Tokens.List() {
		if g.tokens.Has(t.Name) {
			g.parts.Log.Warn("a token in auth.tokens has the name of another token, so the journal does not tell them apart; rename it, or run `ferrule token revoke "+t.Name+"`", "token", t.Name)
		}
	}
}

// managed implements builtin.Tokens.
type managed struct{ *Gateway }

// List implements builtin.Tokens. It has the tokens of the configuration too, and the logins
// of agents.
func (m managed) List() []ferrule.Token {
	all := m.Tokens.List()
	for _, who := range m.tokens.Principals() {
		all = append(all, ferrule.Token{Name: who.Name, ID: who.TokenID, Scopes: who.Scopes.Names(), Devices: who.DevicePatterns(), Config: true})
	}
	if m.OAuth != nil {
		all = append(all, m.OAuth.Grants()...)
	}
	slices.SortStableFunc(all, func(a, b ferrule.Token) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// URL implements builtin.Tokens. The address of this machine in its network may change, so
// it is not used where it is not needed.
func (m managed) URL() string {
	if m.web == nil {
		return ""
	}
	if at, ok := m.web.Addr().(*net.TCPAddr); ok && at.IP.IsUnspecified() && m.certificate == nil {
		return fmt.Sprintf("http://127.0.0.1:%d/mcp", at.Port)
	}
	return m.Gateway.URL() + "/mcp"
}

// Add implements builtin.Tokens.
func (m managed) Add(by ferrule.Principal, in builtin.AddTokenInput) (builtin.TokenOutput, error) {
	if in.Rotate && slices.ContainsFunc(m.Tokens.List(), func(t ferrule.Token) bool { return t.Name == in.Name }) {
		return m.Rotate(by, builtin.RotateTokenInput{Name: in.Name})
	}
	if strings.HasPrefix(in.Name, oauth.GrantPrefix) {
		return builtin.TokenOutput{}, ferrule.Errorf(ferrule.Invalid, "the name of a token cannot begin with %s, like those of logins", oauth.GrantPrefix).WithHint("choose another name, for example claude")
	}
	scopes := ferrule.LimitTo(ferrule.ScopeEndanger)
	if in.Scopes != nil {
		var err error
		if scopes, err = ferrule.ParseScopes(in.Scopes); err != nil {
			return builtin.TokenOutput{}, ferrule.Errorf(ferrule.Invalid, "%w", err)
		}
	}
	out, err := m.output(m.Tokens.Add(by, tokens.New{Name: in.Name, Scopes: scopes, Devices: in.Devices, Expires: time.Duration(in.Expires)}))
	for _, pattern := range in.Devices {
		who := ferrule.Principal{Devices: pattern}
		if err == nil && !slices.ContainsFunc(m.Fleet.Devices(), who.Reaches) {
			out.Note = strings.TrimSpace(out.Note + " No device matches " + pattern + " now.")
		}
	}
	return out, err
}

// Rotate implements builtin.Tokens.
func (m managed) Rotate(by ferrule.Principal, in builtin.RotateTokenInput) (builtin.TokenOutput, error) {
	overlap := DefaultOverlap
	if in.Overlap != nil {
		overlap = time.Duration(*in.Overlap)
	}
	return m.output(m.Tokens.Rotate(by, in.Name, overlap))
}

// Revoke implements builtin.Tokens.
func (m managed) Revoke(by ferrule.Principal, in builtin.RevokeTokenInput) (builtin.TokenOutput, error) {
	defer m.Approvals.Recheck()
	if !strings.HasPrefix(in.Name, oauth.GrantPrefix) {
		out, err := m.output(m.Tokens.Revoke(by, in.Name))
		if err == nil && m.tokens.Has(in.Name) {
			out.Note = strings.TrimSpace(out.Note + " The token of the same name in auth.tokens of the configuration still works. To end it, remove it there, then run `ferrule reload`.")
		}
		return out, err
	}
	if m.OAuth == nil {
		return builtin.TokenOutput{}, ferrule.Errorf(ferrule.NotFound, "there are no logins of agents, because the authorization server is off").WithHint("to enable it, set auth.server.enabled in ferrule.yaml")
	}
	out := builtin.TokenOutput{Token: ferrule.Token{Name: in.Name, Scopes: []string{}, Devices: []string{}}}
	for _, login := range m.OAuth.Grants() {
		if login.Name == in.Name {
			out.Token = login
		}
	}
	return out, m.OAuth.Revoke(by, in.Name)
}

func (m managed) output(c tokens.Changed, err error) (builtin.TokenOutput, error) {
	out := builtin.TokenOutput{Token: c.Token, Secret: c.Secret.Reveal(), Note: c.Note}
	if url := m.Gateway.URL(); url != "" && c.Secret != "" {
		out.URL = url + "/mcp"
	}
	return out, err
}

// loopback says whether programs on this machine need no token over HTTP.
type loopback struct {
	open  context.Context // ends when they need one
	close context.CancelFunc
}

func newLoopback(open bool) *loopback {
	l := &loopback{}
	l.open, l.close = context.WithCancel(context.Background())
	if !open {
		l.close()
	}
	return l
}

// Open reports whether they need none, and until when.
func (l *loopback) Open() (valid context.Context, open bool) { return l.open, l.open.Err() == nil }
