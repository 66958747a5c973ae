package gateway

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/ferrulehq/ferrule/internal/console"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/oauth"
)

// oauthFile is the file of the authorization server in the data directory.
const oauthFile = "oauth"

// openOAuth opens the gateway's own authorization server, if it is enabled.
func (g *Gateway) openOAuth() error {
	if !g.parts.Config.Auth.Server.Enabled {
		return nil
	}
	cfg, err := g.parts.Config.OAuthConfig()
	if err != nil {
		return err
	}
	g.OAuth, err = oauth.Open(oauth.Parts{
		Config: cfg, File: filepath.Join(g.parts.Data, oauthFile), Node: g.node(), Origin: g.origin, Logins: g.People,
		Devices: g.grantable, Record: g.recordAccess, Shared: g.shared(), Frame: console.Plain, Log: g.parts.Log,
	})
	return err
}

// verifyOAuth implements identity.Verifier.
func (g *Gateway) verifyOAuth(ctx context.Context, credential string, r identity.Request) (identity.Credential, error) {
	if g.OAuth == nil {
		return identity.Credential{}, identity.ErrUnknown
	}
	return g.OAuth.Verify(ctx, credential, r)
}

// grantable returns the devices that a person can choose for an agent.
func (g *Gateway) grantable(who ferrule.Principal) (all []oauth.Device) {
	for _, dev := range g.Fleet.Devices() {
		if dev.ID != ferrule.GatewayID && dev.Trust != ferrule.TrustPending && who.Reaches(dev) {
			all = append(all, oauth.Device{ID: dev.ID, Text: strings.TrimSpace(dev.Model + " " + dev.Version)})
		}
	}
	return all
}

// handleOAuth serves the authorization server. Its paths need no credential.
func (g *Gateway) handleOAuth(mux *http.ServeMux) {
	if g.OAuth != nil {
		g.OAuth.Handle(mux, g.anyOrigin)
	}
}

// anyOrigin refuses requests with a wrong Host, but not those from pages of other sites. The
// authorization server has its own checks of these.
func (g *Gateway) anyOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		without := r.Clone(r.Context())
		without.Header.Del("Origin")
		g.Agents.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { next.ServeHTTP(w, r) })).ServeHTTP(w, without)
	})
}
