package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// TestWrongTokenDelay: the delay doubles up to a limit, hosts do not share it, and a quiet
// host starts over. The log has the first wrong token, and each time the number doubled.
func TestWrongTokenDelay(t *testing.T) {
	var log bytes.Buffer
	w := wrongTokens{log: slog.New(slog.NewTextHandler(&log, nil)), byHost: make(map[netip.Prefix]*wrongCount)}
	host, other := mcphttp.HostOf("192.0.2.1:1000"), mcphttp.HostOf("192.0.2.2:1000")
	now := time.Now()
	for i, want := range []string{"100ms", "200ms", "400ms", "800ms", "1.6s", "3.2s", "5s", "5s"} {
		if got := w.add(host, now).String(); got != want {
			t.Errorf("wrong token %d is delayed by %s, want %s", i+1, got, want)
		}
	}
	if got := w.add(other, now); got != minWrongDelay {
		t.Errorf("another host is delayed by %v", got)
	}
	if got := w.add(host, now.Add(wrongTokenAge+time.Second)); got != minWrongDelay {
		t.Errorf("a quiet host is delayed by %v", got)
	}
	if n := strings.Count(log.String(), "wrong token from 192.0.2.1"); n != 5 {
		t.Errorf("%d lines are logged:\n%s", n, &log)
	}
	for i := range 3 * maxWrongHosts {
		w.add(mcphttp.HostOf(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)), now.Add(time.Duration(i)))
	}
	if n := len(w.byHost); n > maxWrongHosts {
		t.Errorf("%d hosts are remembered", n)
	}
}

// TestWrongTokens: wrong tokens are delayed and end the connection; a valid one is served
// at once.
func TestWrongTokens(t *testing.T) {
	var log bytes.Buffer
	_, url := serve(t, func(f *Server) {
		tokens, err := identity.NewTokens([]identity.Token{{Name: "ada", Secret: "a-token-of-sixteen"}})
		if err != nil {
			t.Fatal(err)
		}
		f.parts.Verify, f.parts.Open, f.wrong.log = tokens.Verify, closed, slog.New(slog.NewTextHandler(&log, nil))
	})
	ask := func(token string) (*http.Response, time.Duration) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		start := time.Now()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp, time.Since(start)
	}
	for _, least := range []time.Duration{minWrongDelay, 2 * minWrongDelay, 4 * minWrongDelay} {
		if resp, took := ask("guess"); resp.StatusCode != http.StatusUnauthorized || took < least || !resp.Close {
			t.Errorf("a wrong token: %s after %v, want at least %v; closed: %t", resp.Status, took, least, resp.Close)
		}
	}
	if resp, _ := ask("a-token-of-sixteen"); resp.StatusCode != http.StatusOK || resp.Close {
		t.Errorf("a valid token: %s, closed: %t", resp.Status, resp.Close)
	}
	if !strings.Contains(log.String(), "wrong token from 127.0.0.1, 2 so far") {
		t.Errorf("the log has\n%s", &log)
	}
}
