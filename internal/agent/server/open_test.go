package server

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOpen: without a credential, only callers on this machine are let in, if it is open to
// them. A credential that is sent is checked always.
func TestOpen(t *testing.T) {
	open := func() (context.Context, bool) { return context.Background(), true }
	s := &Server{}
	for name, test := range map[string]struct {
		open  func() (context.Context, bool)
		local net.Addr
		sends string
		want  bool
	}{
		"this machine":        {open, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, "-", true},
		"this machine, IPv6":  {open, &net.TCPAddr{IP: net.IPv6loopback}, "-", true},
		"closed":              {closed, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, "-", false},
		"with a token":        {open, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, "Bearer x", false},
		"with an empty token": {open, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, "", false},
		"another machine":     {open, &net.TCPAddr{IP: net.IPv4(192, 168, 1, 10)}, "-", false},
		"somewhere":           {open, nil, "-", false},
	} {
		s.parts.Open = test.open
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		if test.sends != "-" {
			r.Header.Set("Authorization", test.sends)
		}
		if test.local != nil {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, test.local))
		}
		if _, got := s.openTo(r); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
		for _, header := range []string{"Forwarded", "X-Forwarded-For", "x-forwarded-host", "X-Real-IP", "Via"} {
			passed := r.Clone(r.Context())
			passed.Header.Set(header, "")
			if _, got := s.openTo(passed); got {
				t.Errorf("%s: a proxy that sends %s lets others in", name, header)
			}
		}
	}
}
