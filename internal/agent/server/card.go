package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A server card says what is served at an address, before a program connects, and a catalog
// says where the cards of a site are (SEP-2127). Both are experimental: the proposal is not
// accepted, and may change.
const (
	CardPath    = "/mcp/server-card"
	CatalogPath = "/.well-known/ai-catalog.json"

	cardType    = "application/mcp-server-card+json"
	catalogType = "application/ai-catalog+json"
	cardSchema  = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
)

// The gateway in registries of MCP servers.
const (
	registryName        = "io.github.ferrulehq/ferrule"
	registryDescription = "A gateway that offers boards, machines and homes as tools"
)

type serverCard struct {
	Schema      string       `json:"$schema"`
	Name        string       `json:"name"`
	Version     string       `json:"version"`
	Description string       `json:"description"`
	Title       string       `json:"title"`
	WebsiteURL  string       `json:"websiteUrl"`
	Remotes     []cardRemote `json:"remotes"`
}

type cardRemote struct {
	Type     string   `json:"type"`
	URL      string   `json:"url"`
	Versions []string `json:"supportedProtocolVersions"`
}

type aiCatalog struct {
	Version string         `json:"specVersion"`
	Entries []catalogEntry `json:"entries"`
}

type catalogEntry struct {
	Identifier string `json:"identifier"`
	Type       string `json:"type"`
	URL        string `json:"url"`
}

// Card serves the server card at CardPath and the catalog at CatalogPath, to everybody. They
// exist only at the URL of the gateway, if that is known: what each caller's own address is
// must not be announced.
func (s *Server) Card() http.Handler {
	origin := strings.TrimSuffix(s.parts.URL, "/")
	at, err := url.Parse(origin)
	if err != nil || at.Host == "" {
		return http.NotFoundHandler()
	}
	info := s.implementation()
	mux := http.NewServeMux()
	mux.Handle(CardPath, publicDocument(cardType, serverCard{
		Schema: cardSchema, Name: registryName, Version: info.Version, Description: registryDescription, Title: info.Title, WebsiteURL: info.WebsiteURL,
		Remotes: []cardRemote{{Type: "streamable-http", URL: origin + "/mcp", Versions: mcp.SupportedProtocolVersions()}},
	}))
	mux.Handle(CatalogPath, publicDocument(catalogType, aiCatalog{
		Version: "1.0", Entries: []catalogEntry{{"urn:air:" + strings.ToLower(at.Hostname()) + ":mcp:" + info.Name, cardType, origin + CardPath}},
	}))
	return closing(mux)
}

// publicDocument serves a JSON document that does not change while the program runs.
func publicDocument(mime string, value any) http.Handler {
	body, err := json.Marshal(value)
	if err != nil { // not with these types
		panic(err)
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !publicRead(w, r, "Accept, If-None-Match") {
			return
		}
		h := w.Header()
		h.Set("Content-Type", mime)
		h.Set("Cache-Control", "public, max-age=3600")
		h.Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}
