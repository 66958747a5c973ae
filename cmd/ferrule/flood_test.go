package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
)

// TestRefusedFlood checks that a caller with wrong calls can neither fill the disk nor deny
// changes to others.
func TestRefusedFlood(t *testing.T) {
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, unmeasured, func(c *config.Config) { c.Calls.Refused = 100 })
	g.online("robot")
	long := `{"pin":"` + strings.Repeat("x", 100<<10) + `"}`
	codes := make(map[ferrule.Code]int)
	for _, device := range []string{"robot", "nobody"} {
		for range 150 {
			_, err := g.call(device, "gpio_write", long, 0)
			codes[ferrule.AsError(err).Code]++
		}
	}
	if codes[ferrule.Invalid] < 100 || codes[ferrule.Limited] < 100 {
		t.Errorf("the calls ended with %v", codes)
	}
	if _, err := g.Pipeline.Handle(t.Context(), &ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna"}, Device: "robot", Tool: "gpio_write", Args: json.RawMessage(`{"pin":2,"value":true}`),
	}); err != nil {
		t.Errorf("another caller: %v", err)
	}
	g.stop()
	info, err := os.Stat(filepath.Join(g.data, journal.FileName))
	if err != nil || info.Size() > 1<<20 {
		t.Errorf("the journal has %d bytes, %v", info.Size(), err)
	}
}
