package transport_test

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// TestParseMAC: every spelling gives the same address, and group addresses are
// rejected.
func TestParseMAC(t *testing.T) {
	const want = "98:a3:16:f9:d9:34"
	for _, s := range []string{want, "98:A3:16:F9:D9:34", "98-a3-16-f9-d9-34", "98_a3_16_f9_d9_34", "98a3.16f9.d934"} {
		if got, err := transport.ParseMAC(s); got != want || err != nil {
			t.Errorf("%s: %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "toy", "98:a3:16:f9:d9", "98:a3:16:f9:d9:34:00:01", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", want + " "} {
		if got, err := transport.ParseMAC(s); err == nil {
			t.Errorf("%q was accepted as %s", s, got)
		}
	}
}
