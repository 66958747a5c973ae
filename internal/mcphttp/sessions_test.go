package mcphttp

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestIdle: a session is idle when it had no request for long enough and has no open
// stream.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessionUses()
		idle := func() bool {
			at, free := s.last("a")
			return free && at.Before(time.Now().Add(-time.Hour))
		}
		if idle() {
			t.Error("a new session is idle")
		}
		use := s.begin("a")
		time.Sleep(2 * time.Hour)
		if idle() {
			t.Error("a session with an open stream is idle")
		}
		use.end()
		if idle() {
			t.Error("a session is idle at once")
		}
		time.Sleep(2 * time.Hour)
		if !idle() {
			t.Error("a session is never idle")
		}
		s.keep(nil)
		if len(s.byID) != 0 {
			t.Errorf("%d sessions are left", len(s.byID))
		}
	})
}

// TestAdmit: at the session limit, the session that was not used for longest ends,
// unless it was used just now or has an open stream.
func TestAdmit(t *testing.T) {
	h := newTestHandler(3, func(*mcp.Server) {})
	server := httptest.NewServer(h)
	defer server.Close()
	for range 3 {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL + "/mcp", DisableStandaloneSSE: true},
			&mcp.ClientSessionOptions{ProtocolVersion: SessionVersion})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
	}
	if h.Sessions() != 3 || h.Admit() {
		t.Errorf("%d sessions, and one that is in use has ended", h.Sessions())
	}
	var ids []string
	for server := range h.config.Servers() {
		for session := range server.Sessions() {
			ids = append(ids, session.ID())
		}
	}
	for i, id := range ids {
		h.sessions.begin(id).end()
		h.sessions.byID[id].last = time.Now().Add(-time.Duration(i+2) * time.Minute)
	}
	defer h.sessions.begin(ids[2]).end() // the oldest has a stream
	for n := 2; n > 0; n-- {
		if !h.endOldest(func(string) bool { return true }) || h.Sessions() != n {
			t.Errorf("%d sessions are left", h.Sessions())
		}
	}
	if h.endOldest(func(string) bool { return true }) || h.Sessions() != 1 {
		t.Error("a session with an open stream has ended")
	}
}
