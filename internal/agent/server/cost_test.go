package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// TestTokenCheckTime counts the allocations of checking a token that the gateway knows, and
// measures its time, beside the SDK's own check, which is part of it.
func TestTokenCheckTime(t *testing.T) {
	const rounds, requests = 500, 100
	f := newServer(t, nil)
	var all []identity.Token
	for i := range 20 {
		all = append(all, identity.Token{Name: fmt.Sprintf("agent-%d", i), Secret: ferrule.Secret(fmt.Sprintf("fer_0123456789abcdefghijklmnopqrstuvwxyz-%06d", i))})
	}
	tokens, err := identity.NewTokens(all)
	if err != nil {
		t.Fatal(err)
	}
	f.parts.Verify, f.parts.Open = tokens.Verify, closed
	served := 0
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
	info := &sdkauth.TokenInfo{UserID: "agent-7"}
	bare := sdkauth.RequireBearerToken(func(context.Context, string, *http.Request) (*sdkauth.TokenInfo, error) { return info, nil },
		&sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:3377/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+all[7].Secret.Reveal())
	w := httptest.NewRecorder()
	ours := f.Protected(ferrule.ScopeRead, next)
	if n, sdk := testing.AllocsPerRun(1000, func() { ours.ServeHTTP(w, r) }), testing.AllocsPerRun(1000, func() { bare.ServeHTTP(w, r) }); n > sdk+11 {
		t.Errorf("a token check has %v allocations, and %v in the SDK alone", n, sdk)
	}
	if !figure.Measuring() {
		return
	}
	served = 0
	measure := func(h http.Handler) time.Duration {
		start := time.Now()
		for range requests {
			h.ServeHTTP(w, r)
		}
		return time.Since(start) / requests
	}
	var before, after []time.Duration
	for range rounds {
		before, after = append(before, measure(bare)), append(after, measure(ours))
	}
	slices.Sort(before)
	slices.Sort(after)
	if served != 2*rounds*requests {
		t.Fatalf("%d requests were served", served)
	}
	t.Logf("a token check takes %v, and %v in the SDK alone (best of %d rounds; medians %v and %v)", after[0], before[0], rounds, after[rounds/2], before[rounds/2])
	limit := max(5*time.Microsecond, 10*before[0]) // a busy or slow machine needs longer for both
	figure.AtMost(t, "token check", after[0], limit)
}
