package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestOAuthConfig checks the settings of the gateway's own authorization server.
func TestOAuthConfig(t *testing.T) {
	for _, good := range []string{
		"auth: {server: {enabled: true}}\n",
		"auth: {server: {enabled: true}, url: 'https://gw.example'}\n",
		"auth: {server: {enabled: true}, url: 'http://localhost:3377/'}\n",
		"auth: {server: {enabled: true}}\ntls: {cert: a, key: b}\n",
		"auth: {url: 'http://gw.example'}\n", // not enabled
	} {
		if _, err := config.Parse([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "ferrule.yaml")
	text := "auth: {server: {enabled: true, documents: false, clients: [{id: ha, secret_file: ha.secret, redirects: ['https://ha.example/cb']}]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.OAuthConfig(); err == nil || !strings.Contains(err.Error(), "auth.server.clients[0].secret_file") {
		t.Errorf("the file does not exist: %v", err)
	}
	for secret, want := range map[string]string{"0123456789abcdef\n": "", "short\n": "auth.server.clients[0].secret: has 5 characters"} {
		if err := os.WriteFile(filepath.Join(dir, "ha.secret"), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := cfg.OAuthConfig()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
		if want == "" && (len(out.Clients) != 1 || out.Clients[0].Secret.Reveal() != "0123456789abcdef" || out.Documents || !out.Register) {
			t.Errorf("%+v", out)
		}
	}
}
