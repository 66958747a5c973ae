package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// fetch makes an HTTP request to the gateway.
func (g *testGateway) fetch(path string, change func(*http.Request)) (status int, body string) {
	g.t.Helper()
	req, err := http.NewRequest(http.MethodGet, g.url(path), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// metric returns the value of a series, which must exist.
func (g *testGateway) metric(series string) float64 {
	g.t.Helper()
	status, text := g.fetch("/metrics", nil)
	if status != http.StatusOK {
		g.t.Fatalf("%d: %s", status, text)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				g.t.Fatal(err)
			}
			return n
		}
	}
	g.t.Fatalf("series %s is missing", series)
	return 0
}

// TestMetrics checks that the metrics count what has happened.
func TestMetrics(t *testing.T) {
	boards := startSim(t, sim.Config{Count: 2})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, func(c *config.Config) {
		c.Devices.TCP = append(c.Devices.TCP, config.TCPDevice{Address: boards.Addrs()[1], Pending: true})
		c.Calls.Cache = config.Interval(time.Minute)
		c.Calls.InFlight = 1
		c.Polling.Enabled = false // no polling in the lane
	})
	g.online("robot")
	wait.For(t, "both are online", func() bool {
		return g.metric(`ferrule_devices{protocol="mcpu",state="online",transport="tcp"}`) == 2
	})
	a := dialAgent(t, g, legacy, "/mcp")
	for range 3 {
		if _, err := a.use(t.Context(), "robot__gpio_read", `{"pin":2}`); err != nil {
			t.Fatal(err)
		}
	}
	slow := make(chan error, 1)
	go func() {
		_, err := g.call("robot", "sweep", `{"milliseconds":3000}`, 0)
		slow <- err
	}()
	wait.For(t, "the board is at a call", func() bool { return g.metric(`ferrule_lanes_busy`) == 1 })
	if n := g.metric(`ferrule_calls_in_flight{role="agent"}`); n != 1 {
		t.Errorf("%v calls are in flight", n)
	}
	if _, err := g.call("robot", "gpio_write", `{"pin":2,"value":true}`, 0); ferrule.AsError(err).Code != ferrule.Limited {
		t.Errorf("got %v", err)
	}
	if err := <-slow; err != nil {
		t.Fatal(err)
	}
	if _, err := g.call("robot", "gpio_write", `{"pin":2,"value":true}`, 0); err != nil {
		t.Fatal(err)
	}
	for series, want := range map[string]float64{
		`ferrule_calls_total{operation="tool",outcome="ok",role="agent"}`:      5,
		`ferrule_calls_total{operation="tool",outcome="limited",role="agent"}`: 1,
		`ferrule_calls_limited_total`:                                          1,
		`ferrule_call_duration_seconds_count{role="agent"}`:                    6,
		`ferrule_device_duration_seconds_count{role="agent"}`:                  3,
		`ferrule_lane_wait_seconds_count{role="agent"}`:                        3,
		`ferrule_device_duration_seconds_bucket{role="agent",le="2.5"}`:        2,
		`ferrule_cache_lookups_total{result="hit"}`:                            2,
		`ferrule_cache_lookups_total{result="miss"}`:                           1,
		`ferrule_cache_entries`:                                                0,
		`ferrule_calls_in_flight{role="agent"}`:                                0,
		`ferrule_lanes_busy`:                                                   0,
		`ferrule_lanes_waiting_calls`:                                          0,
		`ferrule_devices_pending`:                                              1,
		`ferrule_agent_sessions`:                                               1,
		`ferrule_journal_healthy`:                                              1,
		`ferrule_cluster_nodes`:                                                0,
	} {
		if got := g.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if records, syncs := g.metric("ferrule_journal_records_total"), g.metric("ferrule_journal_sync_duration_seconds_count"); records < 3 || syncs < 2 || syncs > records {
		t.Errorf("%v records in %v syncs", records, syncs)
	}
	for _, stage := range []string{"audit", "resolve", "validate", "authorize", "approve", "cache", "limit"} {
		if n := g.metric(fmt.Sprintf("ferrule_stage_duration_seconds_count{stage=%q}", stage)); n == 0 {
			t.Errorf("%s was not timed", stage)
		}
	}
	if n := g.metric("process_resident_memory_bytes"); n < 1<<20 {
		t.Errorf("the process takes %v bytes", n)
	}
}

// TestMetricsGuard checks that metrics need a token, are refused to other sites, and can
// be turned off.
func TestMetricsGuard(t *testing.T) {
	const token = "a-token-of-sixteen"
	g := startGateway(t, nil, needsToken(config.Token{Name: "prometheus", Token: token}))
	for name, test := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"no token":      {nil, http.StatusUnauthorized},
		"another token": {func(r *http.Request) { r.Header.Set("Authorization", "Bearer nonsense-of-sixteen") }, http.StatusUnauthorized},
		"the token":     {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }, http.StatusOK},
		"a page": {func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Origin", "http://evil.example")
		}, http.StatusForbidden},
		"another name": {func(r *http.Request) { r.Host = "evil.example" }, http.StatusForbidden},
	} {
		status, body := g.fetch("/metrics", test.change)
		if status != test.want || strings.Contains(body, "ferrule_") != (test.want == http.StatusOK) {
			t.Errorf("%s: %d %.100s", name, status, body)
		}
	}
	open := startGateway(t, nil)
	if status, _ := open.fetch("/metrics", nil); status != http.StatusOK {
		t.Errorf("open to this machine: %d", status)
	}
	off := startGateway(t, nil, func(c *config.Config) { c.Telemetry.Metrics = false })
	if status, _ := off.fetch("/metrics", nil); status != http.StatusNotFound {
		t.Errorf("switched off: %d", status)
	}
}
