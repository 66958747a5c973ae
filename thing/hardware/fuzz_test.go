package hardware

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unicode"

	"github.com/ferrulehq/ferrule/thing"
)

func isRefused(err error) bool {
	var refused *thing.RefusedError
	return errors.As(err, &refused)
}

// FuzzFiles feeds the decoders of files that hardware fills.
func FuzzFiles(f *testing.F) {
	f.Add("72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=23125\n")
	f.Add(" wlan0: 0000   58.  -52.  -256        0      0      0      0    124        0\n")
	f.Add("MemTotal:         948304 kB\nMemAvailable:     612340 kB\n")
	f.Add("NaN +Inf\n")
	f.Add("0.52 0.41 0.30 1/123 4567\n")
	f.Add("Caf\xc3\xa9\x1b[2J")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := parseOneWire(text); err == nil && !(c >= -55 && c <= 125) {
			t.Errorf("temperature %v of %q", c, text)
		}
		link, signal := parseWireless(text, "wlan0")
		if link != nil && !(*link >= 0 && *link <= 255) || signal != nil && !(*signal < 0 && *signal > -256) {
			t.Errorf("Wi-Fi %v, %v of %q", link, signal, text)
		}
		if total, available, err := parseMemory(text); err == nil && (total < 0 || available < 0) {
			t.Errorf("memory %d, %d of %q", total, available, text)
		}
		var a, b float64
		if parseNumbers(text, &a, &b) == nil && (math.IsNaN(a+b) || math.IsInf(a+b, 0)) {
			t.Errorf("numbers %v, %v of %q", a, b, text)
		}
		if name := cleanSSID([]byte(text)); strings.ContainsFunc(name, unicode.IsControl) || len(name) > 4*32+2 {
			t.Errorf("name %q of %q", name, text)
		}
	})
}
