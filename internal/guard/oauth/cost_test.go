package oauth

import (
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// raceDetector reports whether the race detector is on, which changes all times.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestCost: the check of an access token takes at most 5 microseconds.
func TestCost(t *testing.T) {
	if raceDetector() {
		t.Skip("the race detector changes all times")
	}
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
	t.Logf("a check takes %v", best)
	if best > 5*time.Microsecond {
		t.Errorf("a check takes %v, limit is 5µs", best)
	}
}
