package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGet checks that a file is read within limits, from this address only, and that no error has
// the signature.
func TestGet(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Error("a redirect was followed")
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was sent")
		}
		switch r.URL.Path {
		case "/base/api/fits":
			w.Write(make([]byte, 1000))
		case "/base/api/long":
			w.Write(make([]byte, 1001))
		case "/base/api/elsewhere":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/base/api/broken":
			w.Header().Set("Content-Length", "500")
			w.Write(make([]byte, 10))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	client := New(Config{URL: server.URL + "/base/", Token: func() (string, error) { return "secret", nil }}, slog.New(slog.DiscardHandler))
	if data, err := client.get(t.Context(), "/api/fits?authSig=secret", 1000); err != nil || len(data) != 1000 {
		t.Errorf("got %d bytes, %v", len(data), err)
	}
	for path, want := range map[string]string{
		"/api/long": "more than 1000 bytes", "/api/elsewhere": "status 302", "/api/missing": "status 404", "/api/broken": "unexpected EOF",
	} {
		if _, err := client.get(t.Context(), path+"?authSig=secret", 1000); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	server.Close()
	if _, err := client.get(t.Context(), "/api/fits?authSig=secret", 1000); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a server that is gone: %v", err)
	}
}
