package mcphttp

import (
	"net"
	"net/http"
	"strings"
)

// Origin returns the origin at which a caller reaches this server, for example
// https://gateway.example: the configured one, or else what the request says. It ignores
// X-Forwarded headers, because every caller can send them.
func Origin(configured string, r *http.Request) string {
	if configured != "" {
		return strings.TrimSuffix(configured, "/")
	}
	host := r.Host
	if !isHost(host) {
		host = "localhost"
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			host = local.String()
		}
	}
	if r.TLS != nil {
		return "https://" + host
	}
	return "http://" + host
}

// isHost reports whether a Host header can only be a name or an address, perhaps with a
// port. One that came with an absolute URL may have other characters.
func isHost(host string) bool {
	for i := range len(host) {
		switch c := host[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(".-_:[]%", c) >= 0:
		default:
			return false
		}
	}
	return host != ""
}
