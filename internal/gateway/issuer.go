package gateway

import (
	"fmt"

	"github.com/ferrulehq/ferrule/internal/guard/issuer"
)

// openIssuers makes the external issuers whose tokens are accepted. Nothing is fetched: the
// gateway starts while an issuer is down.
func (g *Gateway) openIssuers() error {
	configs, err := g.parts.Config.IssuerConfigs()
	if err != nil {
		return err
	}
	for n, cfg := range configs {
		i, err := issuer.New(issuer.Parts{Config: cfg, Record: g.recordAccess, Log: g.parts.Log})
		if err != nil {
			return fmt.Errorf("auth.issuers[%d].%w", n, err)
		}
		g.issuers = append(g.issuers, i)
	}
	return nil
}
