package builtin

import (
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestFit checks that a chart covers the time that has values.
func TestFit(t *testing.T) {
	now := time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC)
	values := func(from, to time.Duration) ferrule.Series {
		return ferrule.Series{Resolution: ferrule.Raw, Points: []ferrule.Point{{Time: now.Add(from)}, {Time: now.Add(to)}}}
	}
	left := values(-40*time.Minute, 0)
	left.Truncated = true
	for name, test := range map[string]struct {
		series   []ferrule.Series
		end      bool
		from, to time.Duration
	}{
		"nothing":         {nil, true, -time.Hour, 0},
		"two minutes":     {[]ferrule.Series{values(-2*time.Minute, -10*time.Second)}, true, -2*time.Minute - 2200*time.Millisecond, -7800 * time.Millisecond},
		"a chosen end":    {[]ferrule.Series{values(-2*time.Minute, -10*time.Second)}, false, -2*time.Minute - 2200*time.Millisecond, 0},
		"all of the time": {[]ferrule.Series{values(-time.Hour, 0)}, true, -time.Hour, 0},
		"two signals":     {[]ferrule.Series{values(-30*time.Minute, -20*time.Minute), values(-10*time.Minute, -5*time.Minute)}, true, -30*time.Minute - 30*time.Second, -4*time.Minute - 30*time.Second},
		"left out":        {[]ferrule.Series{left}, true, -time.Hour, 0},
		"one value":       {[]ferrule.Series{values(-time.Minute, -time.Minute)}, true, -time.Minute - time.Second, -time.Minute + time.Second},
	} {
		p := Chart{From: now.Add(-time.Hour), To: now, Series: test.series}
		p.fit(test.end)
		if from, to := p.From.Sub(now), p.To.Sub(now); from != test.from || to != test.to {
			t.Errorf("%s: got %v to %v, want %v to %v", name, from, to, test.from, test.to)
		}
	}
}
