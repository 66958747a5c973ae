package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestServerCard checks that the card is served to everybody if the owner wants it, and to
// nobody otherwise.
func TestServerCard(t *testing.T) {
	get := func(g *testGateway, path string) (status int, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", g.url(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://elsewhere.example")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	public := func(c *config.Config) { c.Auth.URL, c.Agents.OpenLoopback = "https://gw.example", false }
	for _, test := range []struct {
		name   string
		served bool
		change []func(*config.Config)
	}{
		{"off", false, nil},
		{"a URL alone", false, []func(*config.Config){public}},
		{"on", true, []func(*config.Config){public, func(c *config.Config) { c.Agents.ServerCard = true }}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := startGateway(t, nil, test.change...)
			for path, want := range map[string]string{"/.well-known/ai-catalog.json": `"url":"https://gw.example/mcp/server-card"`, "/mcp/server-card": `"url":"https://gw.example/mcp"`} {
				status, text := get(g, path)
				if served := status == http.StatusOK && strings.Contains(text, want); served != test.served || strings.Contains(text, "ai-catalog") || !test.served && status == http.StatusOK {
					t.Errorf("%s: %d %s", path, status, text)
				}
			}
			if status, _ := get(g, "/mcp"); status == http.StatusOK {
				t.Errorf("/mcp: %d", status)
			}
		})
	}
}
