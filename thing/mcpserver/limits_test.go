package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

type reading struct {
	Pin  int    `json:"pin"`
	Unit string `json:"unit,omitempty"`
}

// sensor is a device that counts how often it is read.
func sensor(reads *int) *mcpserver.Device {
	board := thing.New("sensor", "1")
	thing.Tool(board, "read", "Read", func(_ context.Context, in reading) (map[string]int, error) {
		*reads++
		if in.Pin == 9 {
			return nil, errors.New("no such pin")
		}
		return map[string]int{"value": *reads}, nil
	})
	d := mcpserver.New(board, mcpserver.Config{})
	thing.Tool(board, "calibrate", "Calibrate", func(context.Context, struct{}) (string, error) {
		d.Invalidate("read")
		return "done", nil
	})
	d.Cache("read", time.Hour)
	return d
}

// TestCache: equal arguments give the same result until it is invalidated, and errors
// are not cached.
func TestCache(t *testing.T) {
	reads := 0
	d := sensor(&reads)
	url := serve(t, d)
	inVersions(t, func(t *testing.T, version string) {
		session := dial(t, url, version, nil)
		before, stats := reads, d.CacheStats()
		first := call(t, session, "read", json.RawMessage(`{"pin":1,"unit":"C"}`))
		if again := call(t, session, "read", json.RawMessage(`{ "unit":"C", "pin":1 }`)); again != first || reads != before+1 {
			t.Errorf("got %s and %s, read %d times", first, again, reads-before)
		}
		call(t, session, "read", json.RawMessage(`{"pin":1,"unit":"F"}`))
		call(t, session, "read", json.RawMessage(`{"pin":9}`))
		call(t, session, "read", json.RawMessage(`{"pin":9}`))
		if reads != before+4 {
			t.Errorf("read %d times", reads-before)
		}
		now := d.CacheStats()
		if now.Hits-stats.Hits != 1 || now.Misses-stats.Misses != 4 || now.Entries != 2 || now.Bytes == 0 {
			t.Errorf("got %+v after %+v", now, stats)
		}
		call(t, session, "calibrate", nil)
		if again := call(t, session, "read", json.RawMessage(`{"pin":1,"unit":"C"}`)); again == first || d.CacheStats().Entries != 1 {
			t.Errorf("got %s, %+v", again, d.CacheStats())
		}
		d.Invalidate()
		if now := d.CacheStats(); now.Entries != 0 || now.Bytes != 0 {
			t.Errorf("got %+v", now)
		}
	})
}

// TestHooks: a hook before a call can refuse it, a hook after it gets the outcome, and
// a hook that panics does no harm.
func TestHooks(t *testing.T) {
	reads := 0
	d := sensor(&reads)
	d.Before(func(_ context.Context, tool string, args json.RawMessage) error {
		switch {
		case strings.Contains(string(args), "13"):
			return errors.New("not this one")
		case strings.Contains(string(args), "14"):
			panic("short circuit")
		}
		return nil
	})
	var outcomes []mcpserver.Outcome
	d.After(func(_ context.Context, o mcpserver.Outcome) { outcomes = append(outcomes, o) })
	d.After(func(context.Context, mcpserver.Outcome) { panic("short circuit") })
	session := dial(t, serve(t, d), versions[1], nil)
	for pin, want := range map[string]string{"13": "not this one", "14": "nothing was done"} {
		if got := call(t, session, "read", json.RawMessage(`{"pin":`+pin+`}`)); !strings.Contains(got, want) || !strings.Contains(got, mcpserver.Untried) || reads != 0 {
			t.Errorf("got %s, read %d times", got, reads)
		}
	}
	call(t, session, "read", json.RawMessage(`{"pin":1}`))
	call(t, session, "read", json.RawMessage(`{"pin":1}`))
	call(t, session, "read", json.RawMessage(`{"pin":9}`))
	if len(outcomes) != 3 || outcomes[0].Cached || outcomes[0].Err != nil || !outcomes[1].Cached || outcomes[2].Err == nil || outcomes[2].Tool != "read" {
		t.Errorf("got %+v", outcomes)
	}
}

// TestHookAsks: a hook can ask the user before any tool.
func TestHookAsks(t *testing.T) {
	d := mcpserver.New(robot(), mcpserver.Config{})
	d.Before(func(ctx context.Context, tool string, _ json.RawMessage) error {
		if tool != "move" {
			return nil
		}
		_, err := mcpserver.AskUser[confirmation](ctx, "sure", "Move?")
		return err
	})
	url := serve(t, d)
	inVersions(t, func(t *testing.T, version string) {
		if got := call(t, dial(t, url, version, answering("decline")), "move", moving{1}); !strings.Contains(got, "did not agree") {
			t.Errorf("got %s", got)
		}
		session := dial(t, url, version, answering("accept"))
		before := call(t, session, "where", nil)
		call(t, session, "move", moving{1})
		if after := call(t, session, "where", nil); after == before {
			t.Error("the robot has not moved")
		}
	})
}

// post sends an invalid request, to see whether it passes.
func post(t *testing.T, url, token string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// TestRate: a request beyond the rate limit is told when to try again.
func TestRate(t *testing.T) {
	d := mcpserver.New(robot(), mcpserver.Config{Rate: 0.5, Burst: 2})
	url := serve(t, d)
	for range 2 {
		if resp := post(t, url, ""); resp.StatusCode == http.StatusTooManyRequests {
			t.Fatal("a request was limited")
		}
	}
	if resp := post(t, url, ""); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "2" {
		t.Errorf("got %s, to come again after %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	conn := dialSocket(t, serveSockets(t, d))
	if err := ws.WriteFrame(conn.Conn, ws.MaskFrame(ws.NewTextFrame([]byte(`{"jsonrpc":"2.0","id":"x","method":"ping"}`)))); err != nil {
		t.Fatal(err)
	}
	if f, err := ws.ReadFrame(conn.Conn); err != nil || !strings.Contains(string(f.Payload), `"id":"x"`) || !strings.Contains(string(f.Payload), "too many requests") {
		t.Errorf("got %s, %v", f.Payload, err)
	}
}

// bearer sends a token with every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// TestTokens: a caller without a valid token is refused, over HTTP and WebSockets, and
// a session belongs to the token that it began with.
func TestTokens(t *testing.T) {
	d := mcpserver.New(robot(), mcpserver.Config{Tokens: []string{"first", "second"}})
	url, sockets := serve(t, d), serveSockets(t, d)
	for token, want := range map[string]bool{"": false, "third": false, "firs": false, "first": true, "second": true} {
		resp := post(t, url, token)
		if (resp.StatusCode != http.StatusUnauthorized) != want || !want && resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: %s", token, resp.Status)
		}
		dialer := ws.Dialer{Header: ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + token}}}
		conn, _, _, err := dialer.Dial(t.Context(), sockets)
		if (err == nil) != want {
			t.Errorf("%q over a socket: %v", token, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	inVersions(t, func(t *testing.T, version string) {
		session := connect(t, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer("second")}}, version, nil)
		call(t, session, "name", nil)
		if session.ID() == "" {
			return
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Mcp-Session-Id", session.ID())
		resp, err := (&http.Client{Transport: bearer("first")}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("a session of another token: %s", resp.Status)
		}
	})
}

// TestEmptyToken: an empty token panics: an unset variable must not open a door.
func TestEmptyToken(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	mcpserver.New(robot(), mcpserver.Config{Tokens: []string{""}})
}
