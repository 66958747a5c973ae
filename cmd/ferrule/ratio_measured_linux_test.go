//go:build bench

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// eachSecond polls the climate of simulated boards every second. Their two buffers of
// 500 ms are polled as they declare.
const eachSecond = `
match: {protocol: mcpu}
polls:
  read_climate: {every: 1s}
  temperature_threshold: {every: 0s}
`

// TestRatioMeasured polls two thousand boards two thousand times a second, for eight
// thousand samples a second. Agents must hardly notice.
func TestRatioMeasured(t *testing.T) {
	const boards, turns, calls = 2000, 7, 300
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "each-second.yaml"), []byte(eachSecond), 0o600); err != nil {
		t.Fatal(err)
	}
	devices := map[string]string{"robot": simProcess(t, 1)[0]}
	for i, addr := range simProcess(t, boards) {
		devices[fmt.Sprint("board-", i)] = addr
	}
	var asking *poller.Poller
	g := startGatewayWith(t, devices, func(g *gateway.Gateway) { asking, g.Poller = g.Poller, nil }, func(c *config.Config) {
		c.Overlays = dir
		c.Agents.Budget = 1 // lists are not measured here
	})
	for id := range devices {
		g.online(id)
	}
	agent := connectAgent(t, legacy, "/mcp", &mcp.StreamableClientTransport{Endpoint: g.url("/mcp")})
	call := func() { agent.mustUse("robot__gpio_read", `{"pin":2}`, nil) }

	// Once through all buffers; the longest is polled every 24 s.
	stop := ask(t, asking)
	time.Sleep(3 * time.Second)
	before, cpu, began := asking.Stats(), processorTime(t, os.Getpid()), time.Now()
	time.Sleep(25 * time.Second)
	after, spent, lasted := asking.Stats(), processorTime(t, os.Getpid())-cpu, time.Since(began)
	stop()
	each := func(n uint64) float64 { return float64(n) / lasted.Seconds() }
	reads, samples := each(after.Reads-before.Reads), each(after.Samples-before.Samples)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("%d devices, %d polls: %.0f reads and %.0f samples a second, %d failed; %.0f %% of a core, %d MiB in use; 99 %% were asked no later than %v after they were due; the history is %d readings behind",
		after.Devices, after.Polls, reads, samples, after.Failures-before.Failures,
		100*spent.Seconds()/lasted.Seconds(), memory.HeapInuse>>20, after.Late.Quantile(0.99), g.History.Stats().Behind)
	// At most 4,000 of these are from tools: the climate is two numbers.
	if reads < 2000 || samples < 8000+2*boards*0.75 {
		t.Errorf("%.0f reads and %.0f samples a second", reads, samples)
	}

	var with, without []time.Duration
	for range turns {
		without = append(without, medians(calls, call)[0])
		stop := ask(t, asking)
		time.Sleep(1500 * time.Millisecond) // overdue polls run at once
		with = append(with, medians(calls, call)[0])
		stop()
	}
	most(t, "agents' calls, while all is measured against while nothing is", with, without, 1.2)
}

// ask polls devices until stop is called.
func ask(t *testing.T, asking *poller.Poller) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- asking.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
