package mcphttp

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Guard refuses requests that a web page on another site could send: by a DNS name
// of its own that resolves to this machine, or from the page itself. CheckHost
// returns why a request's Host is refused, or an empty string.
func Guard(checkHost func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Guarded(w, r, checkHost) {
			next.ServeHTTP(w, r)
		}
	})
}

// Guarded does the same for one request. It returns false if the request was refused.
func Guarded(w http.ResponseWriter, r *http.Request, checkHost func(*http.Request) string) bool {
	if reason := checkHost(r); reason != "" {
		http.Error(w, reason, http.StatusForbidden)
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if from, err := url.Parse(origin); err != nil || from.Host != r.Host {
			http.Error(w, fmt.Sprintf("requests from pages of %q are not allowed", origin), http.StatusForbidden)
			return false
		}
	}
	return true
}

// Hostname returns a Host header without its port and without brackets.
func Hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
