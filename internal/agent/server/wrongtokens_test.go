package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// TestWrongTokens: an address that sends too many wrong tokens is told to wait, at once and
// not after a delay. A valid token from the same address is accepted, one that has expired
// gets the response that lets an agent log in again, and other addresses are not affected.
// All wrong tokens are recorded, and those that permit too little.
func TestWrongTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newServer(t, func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil })
		ada := ferrule.Principal{Role: ferrule.Agent, Name: "ada", Auth: ferrule.AuthToken}
		f.parts.Open = func() (context.Context, bool) { return nil, false }
		f.parts.Verify = func(_ context.Context, token string, _ identity.Request) (identity.Credential, error) {
			switch token {
			case "valid":
				return identity.Credential{Who: ada, Valid: t.Context()}, nil
			case "old":
				return identity.Credential{Who: ada}, identity.ErrExpired
			case "few":
				return identity.Credential{Who: ferrule.Principal{Role: ferrule.Agent, Name: "few", Auth: ferrule.AuthToken, Scopes: scopesOf(t, "metrics")}, Valid: t.Context()}, nil
			case "revoked":
				return identity.Credential{Who: ada}, identity.ErrUnknown
			}
			return identity.Credential{}, identity.ErrUnknown
		}
		recorded := make(map[string]int)
		f.parts.Record = func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code) {
			if strings.Contains(message, "guess") {
				t.Errorf("the record has the token: %s", message)
			}
			recorded[fmt.Sprint(who.Name, " ", event, " ", message, " ", refused)]++
		}
		handler := f.Handler()
		ask := func(token, from string) *http.Response {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			r.RemoteAddr = from
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Result()
		}
		expect := func(status int, token, from string) {
			t.Helper()
			if resp := ask(token, from); resp.StatusCode != status || (resp.Header.Get("Connection") == "close") != (status != http.StatusOK) {
				t.Errorf("%s from %s: %s, want %d; Connection: %q", token, from, resp.Status, status, resp.Header.Get("Connection"))
			}
		}
		start := time.Now()
		for i := range wrongRate.Burst {
			expect(http.StatusUnauthorized, "guess", fmt.Sprintf("[2001:db8::%x]:1", i+1)) // all of one network
		}
		resp := ask("guess", "[2001:db8::ff]:1")
		if wait := resp.Header.Get("Retry-After"); resp.StatusCode != http.StatusTooManyRequests || wait != wrongWait {
			t.Errorf("%s, wait %q", resp.Status, wait)
		}
		expect(http.StatusTooManyRequests, "guess", "[2001:db8::1]:1")
		expect(http.StatusTooManyRequests, "revoked", "[2001:db8::1]:1")
		expect(http.StatusUnauthorized, "old", "[2001:db8::1]:1")
		expect(http.StatusOK, "valid", "[2001:db8::1]:1")
		expect(http.StatusForbidden, "few", "[2001:db8::1]:1")
		expect(http.StatusUnauthorized, "guess", "192.0.2.1:1")
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/mcp", nil)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if took := time.Since(start); took > 0 {
			t.Errorf("responses were held back for %v", took)
		}
		time.Sleep(2 * time.Minute)
		expect(http.StatusUnauthorized, "guess", "[2001:db8::1]:1")
		want := map[string]int{" token_used no token was sent denied": 1, " token_used unknown token denied": wrongRate.Burst + 4, "ada token_used unknown token denied": 1, "ada token_used the token has expired denied": 1,
			"few token_used this address needs a token with the scope read denied": 1}
		if fmt.Sprint(recorded) != fmt.Sprint(want) {
			t.Errorf("recorded %v, want %v", recorded, want)
		}
	})
}
