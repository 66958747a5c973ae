package api

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
)

// TestProbe checks that a real Home Assistant tells its version without a token.
func TestProbe(t *testing.T) {
	home := homeassistant.Start(t, homeassistant.Options{Bare: true})
	version, err := Probe(t.Context(), Config{URL: home.URL})
	if err != nil || !strings.HasPrefix(version, "20") {
		t.Errorf("got %q, %v", version, err)
	}
}

// TestCA checks that the certificate of a private authority is accepted only if the owner names
// it.
func TestCA(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	if _, err := Probe(t.Context(), Config{URL: server.URL}); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Probe(t.Context(), Config{URL: server.URL, CA: file}); err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("got %v", err)
	}
	for name, content := range map[string]string{"absent": "", "empty": "nothing"} {
		file := filepath.Join(t.TempDir(), name)
		if content != "" {
			os.WriteFile(file, []byte(content), 0o600)
		}
		if _, err := Probe(t.Context(), Config{URL: server.URL, CA: file}); err == nil || !strings.HasPrefix(err.Error(), "ca: ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
