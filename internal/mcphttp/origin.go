package mcphttp

import (
	"net"
	"net/http"
	"regexp"
	"strings"
)

// anyHost matches a name or an address, with or without a port. A Host header that came
// with an absolute URL may have other characters.
var anyHost = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._~-]+)?\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$`)

// Origin returns the origin at which a caller reaches this server, for example
// https://gateway.example: the configured one, or else what the request says. It ignores
// X-Forwarded headers, because every caller can send them.
func Origin(configured string, r *http.Request) string {
	if configured != "" {
		return strings.TrimSuffix(configured, "/")
	}
	host := r.Host
	if !anyHost.MatchString(host) {
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
