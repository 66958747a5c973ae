package gateway

import (
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// openAuth opens what callers over HTTP are authenticated with.
func (g *Gateway) openAuth() error {
	return g.openTokens()
}

// verifier checks the credentials of callers over HTTP.
func (g *Gateway) verifier() identity.Verifier {
	return identity.Any(g.Tokens.Verify, g.tokens.Verify)
}

// recordAccess records who was let in, and who was not.
func (g *Gateway) recordAccess(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code) {
	e := ferrule.Entry{Phase: ferrule.Access, Principal: who, Tool: string(event), From: from, Code: refused, Message: message}
	if err := g.Journal.Append(e, false); err != nil {
		g.parts.Log.Error("access not recorded", "event", event, "err", err)
	}
}
