package gateway

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestOAuthPaths checks who can reach the authorization server: everybody who knows the name
// of the gateway, also pages of other sites, and nobody unless it is enabled.
func TestOAuthPaths(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		cfg := config.Default()
		cfg.Listen, cfg.Auth.Server.Enabled = "127.0.0.1:0", enabled
		g, err := New(Parts{Config: cfg, Data: t.TempDir(), Log: slog.New(slog.DiscardHandler), Load: func() (config.Config, error) {
			next := cfg
			next.Auth.Server.Enabled, next.Auth.URL = !enabled, "https://gw.example"
			return next, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if done, err := g.Reload(); err != nil || !strings.Contains(strings.Join(done.Restart, " "), "auth.server") || !strings.Contains(strings.Join(done.Restart, " "), "auth.url") {
			t.Errorf("needs a restart: %q, %v", done.Restart, err)
		}
		go g.serveHTTP(t.Context())
		at := g.Addr()
		send := func(method, path, host, origin string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			if origin != "" {
				req.Header.Set("Origin", origin)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var out struct {
				Issuer string `json:"issuer"`
			}
			json.NewDecoder(resp.Body).Decode(&out)
			return resp.StatusCode, out.Issuer
		}
		const metadata = "/.well-known/oauth-authorization-server"
		if !enabled {
			for _, path := range []string{metadata, "/oauth/authorize", "/oauth/token", "/oauth/register", "/oauth/revoke"} {
				if status, _ := send(http.MethodGet, path, at, ""); status != http.StatusNotFound {
					t.Errorf("%s is not enabled, but answers %d", path, status)
				}
			}
			continue
		}
		_, port, _ := net.SplitHostPort(at)
		for _, host := range []string{at, "localhost:" + port} {
			if status, issuer := send(http.MethodGet, metadata, host, "https://inspector.example"); status != http.StatusOK || issuer != "http://"+host {
				t.Errorf("as %s: %d, issuer %q", host, status, issuer)
			}
			if status, _ := send(http.MethodGet, server.MetadataPath+"/mcp", host, "https://inspector.example"); status != http.StatusOK {
				t.Errorf("the metadata of the resource as %s: %d", host, status)
			}
		}
		for _, path := range []string{metadata, server.MetadataPath, server.MetadataPath + "/mcp", "/oauth/authorize", "/oauth/token", "/oauth/register"} {
			if status, _ := send(http.MethodGet, path, "evil.example", ""); status != http.StatusForbidden {
				t.Errorf("%s answers under a name of another site: %d", path, status)
			}
		}
		if status, _ := send(http.MethodPost, "/oauth/token", at, "https://inspector.example"); status != http.StatusBadRequest {
			t.Errorf("a page of another site cannot ask for a token: %d", status)
		}
		if status, _ := send(http.MethodPost, "/oauth/authorize?client_id=x", at, "https://evil.example"); status != http.StatusBadRequest {
			t.Errorf("a page of another site answers the consent page: %d", status)
		}
	}
}
