// Package telemetry tells what becomes of calls, and how the gateway is: as metrics
// that Prometheus fetches, and as traces in the words of OpenTelemetry.
//
//	front ─▶ road ─▶ stage ─▶ … ─▶ fleet ─▶ lane, device     the way of a call
//	  │        │       │             │  └──▶ node ─▶ serve ─▶ lane, device
//	  ▼        ▼       ▼             ▼                        each has its Meter:
//	  counts and times in memory ◀───┴── journal, dock, bus, … tell theirs when asked
//	  │                 │
//	  │                 └─▶ GET /metrics
//	  └ spans, of the calls that are followed ─▶ a queue ─▶ a collector
//
// The other rooms know of neither: each takes its Meters, in the words of the root, and
// tells what it counts. Nothing here stands in the way of a call: what is counted takes
// a few atomic additions, and spans that nobody takes in time are dropped, and counted.
// Neither arguments nor answers are told to anybody.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config is what can be set about what is told.
type Config struct {
	// Metrics are counted, and can be fetched.
	Metrics bool
	// Readings are among them: what devices measured last.
	Readings bool
	// Endpoint is the URL of a collector that takes OTLP over HTTP; empty for no traces.
	Endpoint string
	// Ratio is how many of the calls are followed that nobody has said anything about,
	// from 0 to 1.
	Ratio float64
}

// DefaultConfig is to count, and to send nothing to anybody.
func DefaultConfig() Config { return Config{Metrics: true, Ratio: 1} }

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if c.Readings && !c.Metrics {
		return errors.New("readings: they are among the metrics, which are switched off")
	}
	if !(c.Ratio >= 0 && c.Ratio <= 1) {
		return fmt.Errorf("traces.ratio: want from 0 to 1, got %v", c.Ratio)
	}
	if c.Endpoint == "" {
		return nil
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("traces.endpoint: want a URL such as http://127.0.0.1:4318/v1/traces")
	}
	return nil
}

// Parts is what an Observer is made of.
type Parts struct {
	Config Config
	// Node and Version are this gateway's.
	Node, Version string
	// Sources tell what they count when somebody wants to know.
	Sources Sources
	Log     *slog.Logger
}

// Observer measures the way of calls, and tells what it has measured.
type Telemetry struct {
	parts Parts
	began time.Time // its clock counts from here

	calls    outcomes
	inFlight inFlight
	pace     pace
	whole    byRole
	waits    byRole
	takes    byRole
	away     times // calls to other nodes
	served   times // and of them
	syncs    times // of the journal
	stages   []*stage
	readings readings

	traces *traces // nil if there are none
}

// New makes an Observer. It sends nothing until Run runs.
func New(p Parts) *Telemetry {
	o := &Telemetry{parts: p, began: time.Now()}
	if p.Config.Endpoint != "" {
		o.traces = newTraces(p)
	}
	return o
}

// Run sends traces until ctx ends, and then what is left.
func (o *Telemetry) Run(ctx context.Context) error {
	if o.traces != nil {
		o.traces.run(ctx)
	}
	<-ctx.Done()
	return nil
}

// Meters are those of the parts of the way; nil if nothing is observed. It is asked for
// before calls are made.
func (o *Telemetry) Meters() ferrule.Meters {
	if !o.parts.Config.Metrics && o.traces == nil {
		return nil
	}
	return o.meter
}

// The fronts by which calls come in.
const (
	FrontAgent   = "agent"   // agents over HTTP, and at endpoints
	FrontStdio   = "stdio"   // the agent that started this process
	FrontControl = "control" // commands, and agents that other processes serve
)

// Entrance has calls that come in by a front begin their way there.
func (o *Telemetry) Entrance(front string, next ferrule.Handler) ferrule.Handler {
	if o.traces == nil {
		return next
	}
	return ferrule.Measured(&entrance{o.part(front)}, next)
}

// Synced takes in how long the disk took for records of the journal.
func (o *Telemetry) Synced(took time.Duration) { o.syncs.add(took) }

// now is the time of the Observer's clock, which costs less than the time of day.
func (o *Telemetry) now() time.Duration { return time.Since(o.began) }
