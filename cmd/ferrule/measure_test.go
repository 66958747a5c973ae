package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestMeasures checks that a gateway polls its boards and publishes their readings, as
// overlays say, but none of a pending board. The calls pass the pipeline and are not in
// the journal.
func TestMeasures(t *testing.T) {
	boards, pending := startSim(t, sim.Config{Count: 2}), startSim(t, sim.Config{})
	dir := t.TempDir()
	overlay := "match: {device: quiet}\npolls:\n  read_climate: {every: 0s}\n  light: {every: 0s}\n  volts: {tool: adc_read, args: {pin: 34}, every: 500ms}\n"
	if err := os.WriteFile(filepath.Join(dir, "quiet.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0], "quiet": boards.Addrs()[1]}, func(c *config.Config) {
		c.Overlays = dir
		c.Devices.TCP = append(c.Devices.TCP, config.TCPDevice{Name: "pending", Address: pending.Addrs()[0], Pending: true})
	})
	var mu sync.Mutex
	heard := make(map[string]bool)
	for _, id := range []string{"robot", "quiet", "pending"} {
		defer g.Cluster.Samples(id, "", func(r ferrule.Reading) {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range r.Batches {
				heard[r.Device+" "+s.Signal] = true
			}
		})()
		g.online(id)
	}
	want := []string{
		"quiet temperature", "quiet temperature_threshold", "quiet volts_value", "quiet volts_volts",
		"robot light", "robot read_climate_celsius", "robot read_climate_light", "robot temperature", "robot temperature_threshold",
	}
	wait.For(t, "all measurements arrive", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(slices.Sorted(maps.Keys(heard)), want)
	})
	s := g.Poller.Stats()
	if s.Devices != 2 || s.Polls != 4+3 || s.Failures != 0 || s.Dropped != 0 {
		t.Errorf("counted %+v", s)
	}
	figure.AtMost(t, "median delay of polls", s.Late.Quantile(0.5), time.Second)
	wait.For(t, "the pipeline has counted the readings", func() bool { return g.Pipeline.Stats().Readings >= s.Reads })
	if n := g.Pipeline.Stats(); n.ReadingsFailed != 0 {
		t.Errorf("the pipeline counted %+v", n)
	}
	if _, err := g.call("robot", "gpio_read", `{"pin":2}`, ample); err != nil {
		t.Error(err)
	}
	g.stop() // and the journal is written
	recorded := ""
	if err := journal.Read(g.data, func(e ferrule.Entry) error {
		recorded += fmt.Sprintf("%s %s %s;", e.Principal, e.Device, e.Tool)
		return nil
	}); err != nil || recorded != "agent:test robot gpio_read;" {
		t.Errorf("recorded %s, %v", recorded, err)
	}
}
