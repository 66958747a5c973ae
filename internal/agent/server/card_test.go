package server

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// cardSchemaOf returns the schema of server cards. testdata/server-card.schema.json is the file
// schema.json of github.com/modelcontextprotocol/experimental-ext-server-card at 8924e08, under
// the Apache License 2.0.
func cardSchemaOf(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("testdata/server-card.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("card.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("card.json#/$defs/ServerCard")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func cardServer(t *testing.T, at string) *Server {
	t.Helper()
	return New(Parts{Config: DefaultConfig(), Catalog: catalog.New(catalog.DefaultConfig()), URL: at, Version: "1.2.3", Log: slog.New(slog.DiscardHandler)})
}

// fetch gets a path of the public documents.
func fetchCard(t *testing.T, s *Server, method, path string, header map[string]string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.Card().ServeHTTP(w, r)
	return w.Result()
}

// TestCard checks the card against its schema, and against what the server says of itself.
func TestCard(t *testing.T) {
	s := cardServer(t, "https://gw.example/")
	response := fetchCard(t, s, "GET", CardPath, map[string]string{"Origin": "https://elsewhere.example"})
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Content-Type": cardType, "Access-Control-Allow-Origin": "*", "Cache-Control": "public, max-age=3600"} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	schema := cardSchemaOf(t)
	var value map[string]any
	if err := json.Unmarshal(body, &value); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%v\n%s", err, body)
	}
	for key, wrong := range map[string]any{"name": "ferrule", "$schema": "https://static.modelcontextprotocol.io/schemas/v2/server-card.schema.json", "description": strings.Repeat("x", 101)} {
		right := value[key]
		if value[key] = wrong; schema.Validate(value) == nil {
			t.Errorf("the schema accepts %s %v", key, wrong)
		}
		value[key] = right
	}
	var card serverCard
	if err := json.Unmarshal(body, &card); err != nil {
		t.Fatal(err)
	}
	discovered := s.discover(t)
	info, err := json.Marshal(discovered.Meta[mcp.MetaKeyServerInfo])
	if err != nil {
		t.Fatal(err)
	}
	var served mcp.Implementation
	if err := json.Unmarshal(info, &served); err != nil {
		t.Fatal(err)
	}
	if card.Version != served.Version || card.Title != served.Title || !strings.HasSuffix(card.Name, "/"+served.Name) || card.WebsiteURL != served.WebsiteURL {
		t.Errorf("the card is %+v, the server says %+v", card, served)
	}
	if len(card.Remotes) != 1 || card.Remotes[0].URL != "https://gw.example/mcp" || !slices.Equal(card.Remotes[0].Versions, discovered.SupportedVersions) {
		t.Errorf("the card has %+v, the server supports %v", card.Remotes, discovered.SupportedVersions)
	}
}

// discover sends server/discover.
func (s *Server) discover(t *testing.T) *mcp.DiscoverResult {
	t.Helper()
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	request, err := http.NewRequestWithContext(t.Context(), "POST", web.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{
		"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", mcphttp.VersionHeader: mcphttp.StatelessVersion, mcphttp.MethodHeader: "server/discover"} {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := bytes.Cut(body, []byte("{"))
	line, _, _ = bytes.Cut(append([]byte("{"), line...), []byte("\n"))
	var reply struct{ Result *mcp.DiscoverResult }
	if err := json.Unmarshal(line, &reply); err != nil || reply.Result == nil {
		t.Fatalf("%v\n%s", err, body)
	}
	return reply.Result
}

// TestCatalogOfCards follows the catalog to the card, and fetches both again.
func TestCatalogOfCards(t *testing.T) {
	s := cardServer(t, "https://GW.example:8443")
	var found aiCatalog
	response := fetchCard(t, s, "GET", CatalogPath, nil)
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		t.Fatal(err)
	}
	want := catalogEntry{"urn:air:gw.example:mcp:ferrule", cardType, "https://GW.example:8443/mcp/server-card"}
	if found.Version != "1.0" || len(found.Entries) != 1 || found.Entries[0] != want || response.Header.Get("Content-Type") != catalogType {
		t.Errorf("got %+v", found)
	}
	for _, path := range []string{CardPath, CatalogPath} {
		tag := fetchCard(t, s, "HEAD", path, nil).Header.Get("ETag")
		if tag == "" || tag != fetchCard(t, cardServer(t, "https://GW.example:8443"), "GET", path, nil).Header.Get("ETag") {
			t.Errorf("%s: ETag %q is not the same after a restart", path, tag)
		}
		if got := fetchCard(t, s, "GET", path, map[string]string{"If-None-Match": tag}); got.StatusCode != http.StatusNotModified {
			t.Errorf("%s: %s", path, got.Status)
		}
		if got := fetchCard(t, s, "GET", path, map[string]string{"If-None-Match": `"other"`}); got.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, got.Status)
		}
		if got := fetchCard(t, s, "OPTIONS", path, nil); got.StatusCode != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %s", path, got.Status)
		}
		if got := fetchCard(t, s, "POST", path, nil); got.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", path, got.Status)
		}
		if got := fetchCard(t, cardServer(t, ""), "GET", path, nil); got.StatusCode != http.StatusNotFound {
			t.Errorf("%s without a URL: %s", path, got.Status)
		}
	}
}
