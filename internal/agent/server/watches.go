package server

import (
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/notify"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// listWatchesTool is the gateway's tool that returns watches. Without it, agents do not see
// them.
const listWatchesTool = "list_watches"

const watchesURI = scheme + "watches/"

// watchTemplate is the resource template of watches.
var watchTemplate = &mcp.ResourceTemplate{
	Name: "watch", URITemplate: watchesURI + "{watch}", MIMEType: jsonType,
	Description: "A watch: its condition, its last hit and what became of it. It can be subscribed to.",
}

// watchURI returns the URI of a watch.
func watchURI(id string) string { return watchesURI + id }

// watchIn returns the watch in the URI of one.
func (v *view) watchIn(uri string) (id string, ok bool) {
	id, ok = strings.CutPrefix(uri, watchesURI)
	return id, ok && v.watches() && id != "" && !strings.ContainsAny(id, "/%?#")
}

// watches reports whether agents of this view see watches.
func (v *view) watches() bool {
	_, manifest, ok := v.server.parts.Catalog.Lookup(ferrule.GatewayID)
	return ok && manifest != nil && v.device == "" && manifest.Tool(listWatchesTool) != nil
}

// WatchUpdated tells agents that a watch has changed, or has fired. It does not block.
func (s *Server) WatchUpdated(id string) { s.notifier.Changed(notify.Topic{Watch: id}) }
