//go:build bench

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

// TestRatioObserve compares the local pipeline with metrics, and with traces, to one
// without. They take turns.
func TestRatioObserve(t *testing.T) {
	var taken atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		taken.Add(n)
	}))
	defer collector.Close()
	addrs := simProcess(t, 3)
	start := func(addr string, o config.Telemetry) *testGateway {
		g := startGateway(t, map[string]string{"robot": addr}, func(c *config.Config) { c.Telemetry = o })
		g.online("robot")
		return g
	}
	silent := start(addrs[0], config.Telemetry{})
	measured := start(addrs[1], config.Telemetry{Metrics: true})
	followed := start(addrs[2], config.Telemetry{Metrics: true, Traces: config.Traces{Endpoint: collector.URL, Ratio: 1}})
	const args = `{"pin":2}`
	compare(t, "reading over TCP: pipeline with metrics against pipeline without", 1000,
		pipelineCall(t, measured, "robot", "gpio_read", args), pipelineCall(t, silent, "robot", "gpio_read", args), 1.1)
	handle := followed.Telemetry.Entry(telemetry.EntryAgent, followed.Pipeline.Handle)
	compare(t, "reading over TCP: pipeline with traces against pipeline with neither", 1000, func() {
		call := &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: "robot", Tool: "gpio_read", Args: json.RawMessage(args)}
		if _, err := handle(context.Background(), call); err != nil {
			t.Fatal(err)
		}
	}, pipelineCall(t, silent, "robot", "gpio_read", args), 2)
	followed.stop()
	if taken.Load() == 0 {
		t.Error("nothing was followed")
	}
	if n := measured.metric(`ferrule_device_duration_seconds_count{role="agent"}`); n < 1000 {
		t.Errorf("%v calls were measured", n)
	}
}
