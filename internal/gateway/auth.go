package gateway

import (
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/guard/records"
)

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

// shared returns the records that all nodes see; nil if this is the only node.
func (g *Gateway) shared() records.Synced {
	if g.parts.Config.ClusterConfig().Alone() {
		return nil
	}
	return g.Cluster.Shared()
}
