package oauth

import (
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// TestCost measures the check of an access token.
func TestCost(t *testing.T) {
	figure.Only(t)
	r := newTestServer(t, nil)
	var token string
	for range 15 { // more would be too many requests from one address
		token = r.login(r.register(callback)).Access
	}
	const checks = 1000
	best := time.Hour
	for range 50 { // other programs may take the processor meanwhile
		start := time.Now()
		for range checks {
			if _, err := r.verify(token); err != nil {
				t.Fatal(err)
			}
		}
		best = min(best, time.Since(start)/checks)
	}
	figure.AtMost(t, "check of an access token", best, 5*time.Microsecond)
}
