package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
)

// TestAdoptSeveral adopts several devices with one command: those of a Home Assistant are many.
func TestAdoptSeveral(t *testing.T) {
	c := newCommandLine(t)
	var text strings.Builder
	text.WriteString("devices:\n  tcp:\n")
	for _, name := range []string{"one", "two", "three"} {
		fmt.Fprintf(&text, "    - {name: %s, address: %q, pending: true}\n", name, startSim(t, sim.Config{}).Addrs()[0])
	}
	file := filepath.Join(t.TempDir(), "ferrule.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.up("--config", file)
	for _, name := range []string{"one", "two", "three"} {
		c.until(name, ferrule.StateOnline)
	}
	c.want(0, "\n  gpio_write\n", "tools", "one") // the effects of overlays are not known yet
	c.want(0, "one is adopted.\n", "adopt", "one", "two")
	for name, trust := range map[string]ferrule.Trust{"one": ferrule.TrustAdopted, "two": ferrule.TrustAdopted, "three": ferrule.TrustPending} {
		if d := c.device(name); d.Trust != string(trust) {
			t.Errorf("got %+v", d)
		}
	}
	c.want(0, "\n  gpio_write  changes\n", "tools", "one")
	c.want(0, "three\tsim-board online\n:4\n", "__complete", "adopt", "one", "two", "")
}
