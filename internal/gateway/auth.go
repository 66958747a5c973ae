package gateway

import "github.com/ferrulehq/ferrule/internal/guard/identity"

// openAuth opens what callers over HTTP are authenticated with.
func (g *Gateway) openAuth() (err error) {
	g.tokens, err = g.parts.Config.Tokens()
	return err
}

// verifier checks the credentials of callers over HTTP.
func (g *Gateway) verifier() identity.Verifier {
	return identity.Any(g.tokens.Verify)
}
