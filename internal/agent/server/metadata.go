package server

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// MetadataPath is where the metadata of a protected resource begins, of RFC 9728.
const MetadataPath = "/.well-known/oauth-protected-resource"

// metadata is the metadata of a protected resource.
type metadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}

// Metadata serves the metadata of the addresses of MCP: where agents get a token. Without
// an authorization server there is none, because some agents ignore a configured token when
// they find it. It is public, and the same for devices that exist and that do not. An address
// with a profile is a resource of its own, because some agents compare it with theirs.
func (s *Server) Metadata() http.Handler {
	return closing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, MetadataPath)
		resource, device := resourceOf(path)
		origin := mcphttp.Origin(s.parts.URL, r)
		servers := s.parts.AuthServers(origin)
		if len(servers) == 0 || path != "" && path != resource || device != "" && ferrule.CheckID(device) != nil {
			http.NotFound(w, r)
			return
		}
		if !publicRead(w, r, "Content-Type, Mcp-Protocol-Version") {
			return
		}
		name := "Ferrule"
		if device != "" {
			name += ": " + device
		}
		body, err := json.Marshal(metadata{
			Resource: origin + resource + profileQuery(r.URL), Servers: servers, Scopes: ferrule.LimitTo(ferrule.ScopeEndanger).Names(), Methods: []string{"header"}, Name: name,
		})
		if err != nil { // not with these types
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=60")
		w.Write(body)
	}))
}

// publicRead reports whether a request reads a document that pages of every origin may read. It
// answers the others. Headers are those that a page may send.
func publicRead(w http.ResponseWriter, r *http.Request, headers string) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodOptions:
		h.Set("Access-Control-Allow-Methods", "GET, HEAD")
		h.Set("Access-Control-Allow-Headers", headers)
		w.WriteHeader(http.StatusNoContent)
	default:
		h.Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
	}
	return false
}
