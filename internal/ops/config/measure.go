package config

import (
	"math"
	"time"

	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

// Polling configures the poller.
type Polling struct {
	Enabled  bool     `yaml:"enabled"`
	Fastest  Interval `yaml:"fastest"`
	InFlight int      `yaml:"in_flight"`
}

// History configures the history.
type History struct {
	Enabled bool     `yaml:"enabled"`
	Sync    Interval `yaml:"sync"`
	Raw     Interval `yaml:"raw"`
	Minutes Interval `yaml:"minutes"`
	Hours   Interval `yaml:"hours"`
	// Size is in MiB.
	Size int64 `yaml:"size"`
}

// Telemetry configures metrics and traces.
type Telemetry struct {
	Metrics  bool   `yaml:"metrics"`
	Readings bool   `yaml:"readings"`
	Traces   Traces `yaml:"traces"`
}

// Traces configures the export of traces.
type Traces struct {
	// Endpoint is the URL of a collector; empty for none.
	Endpoint string  `yaml:"endpoint"`
	Ratio    float64 `yaml:"ratio"`
}

// PollerConfig returns the config of the poller.
func (c Config) PollerConfig() poller.Config {
	return poller.Config{Enabled: c.Polling.Enabled, Fastest: time.Duration(c.Polling.Fastest), InFlight: c.Polling.InFlight}
}

// HistoryConfig returns the config of the history.
func (c Config) HistoryConfig() history.Config {
	h := c.History
	return history.Config{
		Sync: time.Duration(h.Sync), Raw: time.Duration(h.Raw), Minutes: time.Duration(h.Minutes), Hours: time.Duration(h.Hours), Size: min(h.Size, math.MaxInt64>>20) << 20,
	}
}

// TelemetryConfig returns the config of telemetry.
func (c Config) TelemetryConfig() telemetry.Config {
	return telemetry.Config{
		Metrics: c.Telemetry.Metrics, Readings: c.Telemetry.Readings, Endpoint: c.Telemetry.Traces.Endpoint, Ratio: c.Telemetry.Traces.Ratio,
	}
}
