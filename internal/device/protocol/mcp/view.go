package mcp

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// viewOf returns the view that the _meta of a tool names, or nil. What is invalid is
// ignored.
func viewOf(meta json.RawMessage) *ferrule.ToolView {
	var flat struct {
		URI string `json:"ui/resourceUri"` // deprecated
	}
	var named struct {
		UI struct {
			URI        string   `json:"resourceUri"`
			Visibility []string `json:"visibility"`
		} `json:"ui"`
	}
	if json.Unmarshal(meta, &named) != nil {
		named.UI.URI = ""
	}
	if json.Unmarshal(meta, &flat) != nil {
		flat.URI = ""
	}
	uri := cmp.Or(named.UI.URI, flat.URI)
	if !ferrule.IsView(uri) {
		return nil
	}
	return &ferrule.ToolView{URI: uri, Visibility: named.UI.Visibility}
}

// Limits of the origins that a view asks for.
const (
	maxOrigins = 64
	maxOrigin  = 300
)

// viewHints returns what the _meta of a document says about it. Permissions and the domain
// are left out: no device gets them.
func viewHints(meta json.RawMessage) *ferrule.ViewHints {
	var m struct {
		UI struct {
			CSP    map[string][]string `json:"csp"`
			Border *bool               `json:"prefersBorder"`
		} `json:"ui"`
	}
	hints := &ferrule.ViewHints{}
	if json.Unmarshal(meta, &m) != nil {
		return hints
	}
	hints.Border = m.UI.Border
	for _, use := range []string{"connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"} {
		all := m.UI.CSP[use]
		for _, origin := range all[:min(len(all), maxOrigins)] {
			if ferrule.Clean(origin, maxOrigin) != origin || strings.ContainsAny(origin, " ;,'\"\n\t") {
				continue
			}
			if hints.Origins == nil {
				hints.Origins = make(map[string][]string)
			}
			hints.Origins[use] = append(hints.Origins[use], origin)
		}
	}
	return hints
}
