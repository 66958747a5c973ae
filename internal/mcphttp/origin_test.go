package mcphttp

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOrigin checks that the origin is the configured one, or else that of the request, and
// that neither a proxy's header nor a strange name gets into it.
func TestOrigin(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3377}
	for _, test := range []struct {
		configured, host string
		tls              bool
		want             string
	}{
		{"", "127.0.0.1:3377", false, "http://127.0.0.1:3377"},
		{"", "localhost:3377", false, "http://localhost:3377"},
		{"", "gw.example", true, "https://gw.example"},
		{"", "[::1]:3377", true, "https://[::1]:3377"},
		{"", "[fe80::1%eth0]:80", false, "http://[fe80::1%eth0]:80"},
		{"https://gw.example", "127.0.0.1:3377", false, "https://gw.example"},
		{"https://gw.example/", "other.example", false, "https://gw.example"},
		{"", `a", error="x`, false, "http://127.0.0.1:3377"},
		{"", "a/b", false, "http://127.0.0.1:3377"},
		{"", "user@a", false, "http://127.0.0.1:3377"},
		{"", "", false, "http://127.0.0.1:3377"},
	} {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, local), http.MethodGet, "/mcp", nil)
		r.Host = test.host
		r.Header.Set("X-Forwarded-Host", "evil.example")
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("Forwarded", "host=evil.example;proto=https")
		if test.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if got := Origin(test.configured, r); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
}
