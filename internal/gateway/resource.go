package gateway

import (
	"net/http"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// origin returns the origin at which a caller reaches this gateway.
func (g *Gateway) origin(r *http.Request) string { return mcphttp.Origin(g.parts.Config.Auth.URL, r) }

// authServers returns the issuers from which agents get tokens for this gateway.
func (g *Gateway) authServers(origin string) (issuers []string) {
	if g.parts.Config.Auth.Server.Enabled {
		issuers = append(issuers, origin)
	}
	for _, i := range g.parts.Config.Auth.Issuers {
		issuers = append(issuers, i.URL)
	}
	return issuers
}

// handleMetadata serves where agents get tokens. It is public, but not under a name that is
// not this gateway's.
func (g *Gateway) handleMetadata(mux *http.ServeMux) {
	metadata := g.anyOrigin(g.Agents.Metadata())
	mux.Handle(server.MetadataPath, metadata)
	mux.Handle(server.MetadataPath+"/", metadata)
}

// handleCard serves what this gateway is, if the owner wants that.
func (g *Gateway) handleCard(mux *http.ServeMux) {
	if g.parts.Config.Agents.ServerCard {
		card := g.anyOrigin(g.Agents.Card())
		mux.Handle(server.CardPath, card)
		mux.Handle(server.CatalogPath, card)
	}
}
