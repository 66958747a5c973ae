package gateway

import "github.com/ferrulehq/ferrule/internal/guard/identity"

// openAuth opens what callers over HTTP are authenticated with.
func (g *Gateway) openAuth() error {
	if err := g.openTokens(); err != nil {
		return err
	}
	return g.openIssuers()
}

// verifier checks the credentials of callers over HTTP.
func (g *Gateway) verifier() identity.Verifier {
	verifiers := []identity.Verifier{g.Tokens.Verify, g.tokens.Verify, g.verifyOAuth}
	for _, i := range g.issuers {
		verifiers = append(verifiers, i.Verify)
	}
	return identity.Any(verifiers...)
}
