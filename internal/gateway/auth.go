package gateway

import "github.com/ferrulehq/ferrule/internal/guard/identity"

// openAuth opens what callers over HTTP are authenticated with.
func (g *Gateway) openAuth() (err error) {
	g.loopback = newLoopback(g.parts.Config.Agents.OpenLoopback)
	if g.tokens, err = g.parts.Config.Tokens(); err != nil {
		return err
	}
	return g.openIssuers()
}

// verifier checks the credentials of callers over HTTP.
func (g *Gateway) verifier() identity.Verifier {
	verifiers := []identity.Verifier{g.tokens.Verify, g.verifyOAuth, g.verifyMore}
	for _, i := range g.issuers {
		verifiers = append(verifiers, i.Verify)
	}
	return identity.Any(verifiers...)
}
