package ferrule

import (
	"strings"
	"testing"
	"time"
)

func TestNearest(t *testing.T) {
	names := []string{"gpio_write", "gpio_read", "sweep", "read_climate", "up", "Kitchen"}
	for word, want := range map[string]string{
		"gpio_wrte": "gpio_write", "gpoi_read": "gpio_read", "swep": "sweep", "SWEEP": "sweep", "kitchne": "Kitchen",
		"u": "up", "pu": "up", "toaster": "", "": "", "sleep": "sweep", "gpio": "", "sweep": "", strings.Repeat("x", 100): "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
	if got := DidYouMean("swep", names); got != "; did you mean sweep?" {
		t.Errorf("got %q", got)
	}
	if got := DidYouMean("toaster", names); got != "" {
		t.Errorf("got %q", got)
	}
}

// TestParseDuration checks the units that are the same everywhere.
func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1.5h": 90 * time.Minute, "250ms": 250 * time.Millisecond, "0s": 0, "0": 0,
		"7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "2w": 14 * 24 * time.Hour, "1w2d3h4m5s": (9*24+3)*time.Hour + 4*time.Minute + 5*time.Second,
		"0.5d": 12 * time.Hour, "-30s": -30 * time.Second,
	} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "30", "fast", "d", "1d1d", "1y", "1h2d", "1e9d", "99999999w", "1dx", "-1d-1h"} {
		if got, err := ParseDuration(text); err == nil || !strings.Contains(err.Error(), "must be a duration such as 30s, 5m, 12h or 7d, got ") {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}
