// Package telemetry measures calls and the state of the gateway. It serves metrics to
// Prometheus and exports traces to an OpenTelemetry collector.
//
//	agent ─▶ pipeline ─▶ stage ─▶ … ─▶ fleet ─▶ lane, device    the path of a call
//	  │         │          │            │  └──▶ node ─▶ serve ─▶ lane, device
//	  ▼         ▼          ▼            ▼                        each part has a Meter
//	  counters and histograms ◀─────────┴── journal, dock, cluster, … on each scrape
//	  │                    │
//	  │                    └─▶ GET /metrics
//	  └─ spans of traced calls ─▶ queue ─▶ collector
//
// Other packages know neither Prometheus nor OpenTelemetry: they take [ferrule.Meters]
// and return counters. A call never waits for telemetry. Counting takes a few atomic
// additions; spans that do not fit into the queue are dropped and counted. Arguments
// and results are never exported.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/histogram"
)

// Config selects what is measured and exported.
type Config struct {
	// Metrics enables GET /metrics.
	Metrics bool
	// Readings adds the latest measured values of devices to the metrics.
	Readings bool
	// Endpoint is the URL of a collector that takes OTLP over HTTP; empty for no traces.
	Endpoint string
	// Ratio is the share of calls that are traced if their caller does not decide,
	// from 0 to 1.
	Ratio float64
}

// DefaultConfig enables metrics and exports no traces.
func DefaultConfig() Config { return Config{Metrics: true, Ratio: 1} }

// Check returns the first problem of the config.
func (c Config) Check() error {
	if c.Readings && !c.Metrics {
		return errors.New("readings: needs metrics: true")
	}
	if !(c.Ratio >= 0 && c.Ratio <= 1) {
		return fmt.Errorf("traces.ratio: must be from 0 to 1, got %v", c.Ratio)
	}
	if c.Endpoint == "" {
		return nil
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("traces.endpoint: must be a URL such as http://127.0.0.1:4318/v1/traces")
	}
	return nil
}

// Parts are what New needs.
type Parts struct {
	Config Config
	// Node and Version describe this gateway.
	Node, Version string
	Sources       Sources
	Log           *slog.Logger
}

// Telemetry measures calls and exposes metrics and traces.
type Telemetry struct {
	parts   Parts
	started time.Time // origin of its clock

	calls       outcomes
	callers     callers
	accesses    accesses
	inFlight    inFlight
	sampler     sampler
	callTimes   byRole
	laneWaits   byRole
	deviceTimes byRole
	toNodes     *histogram.Histogram // calls to other nodes
	fromNodes   *histogram.Histogram // calls from other nodes
	syncs       *histogram.Histogram // of the journal
	stages      []*stageMeter
	readings    readings

	traces *traces // nil without an endpoint
}

// New returns a Telemetry. It exports nothing until Run is called.
func New(p Parts) *Telemetry {
	o := &Telemetry{
		parts: p, started: time.Now(), callTimes: newByRole(), laneWaits: newByRole(), deviceTimes: newByRole(),
		toNodes: newDurations(), fromNodes: newDurations(), syncs: newDurations(),
	}
	if p.Config.Endpoint != "" {
		o.traces = newTraces(p)
	}
	return o
}

// Traces reports whether there is something to export, and Run is needed.
func (o *Telemetry) Traces() bool { return o.traces != nil }

// Run exports traces until ctx ends, then flushes the queue.
func (o *Telemetry) Run(ctx context.Context) error {
	o.traces.run(ctx)
	return nil
}

// Meters returns the Meters for all parts of a call's path, or nil if nothing is
// measured. It must be called before the first call.
func (o *Telemetry) Meters() ferrule.Meters {
	if !o.parts.Config.Metrics && o.traces == nil {
		return nil
	}
	return o.meter
}

// The places where calls enter the gateway.
const (
	EntryAgent   = "agent"   // agents over HTTP and at voice endpoints
	EntryStdio   = "stdio"   // the agent that started this process
	EntryControl = "control" // the command line, and agents served by other processes
	EntryConsole = "console" // people with a browser
)

// Entry wraps a handler so that traces of calls start there.
func (o *Telemetry) Entry(name string, next ferrule.Handler) ferrule.Handler {
	if o.traces == nil {
		return next
	}
	return ferrule.Measured(&entryMeter{o.part(name)}, next)
}

// Synced records how long the disk took to sync the journal.
func (o *Telemetry) Synced(took time.Duration) { o.syncs.Observe(took) }

// now returns the time since the start; a monotonic clock is cheaper than wall time.
func (o *Telemetry) now() time.Duration { return time.Since(o.started) }
