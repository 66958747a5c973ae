package main

import (
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

// sources tell what the parts of the gateway count. They are asked once it runs.
func (g *gateway) sources(cfg config.Config) telemetry.Sources {
	all := telemetry.Sources{
		Devices: func(fn func(*ferrule.Device)) { g.fleet.EachOwn(fn) },
		Lanes: func() telemetry.Lanes {
			s := g.dock.Stats()
			return telemetry.Lanes{Busy: s.Busy, Waiting: s.Waiting}
		},
		Cache: func() telemetry.Cache {
			s := g.road.Stats()
			return telemetry.Cache{Hits: s.CacheHits, Misses: s.CacheMisses, Entries: s.CacheEntries, Bytes: s.CacheBytes, Limited: s.Limited}
		},
		Sessions: func() int { return g.agents.Sessions() },
		Cluster:  g.busCounts,
		Journal: func() telemetry.Journal {
			s := g.journal.Stats()
			return telemetry.Journal{Records: s.Records, Failures: s.Failures, Bytes: s.Bytes, Healthy: g.journal.Health() == nil}
		},
	}
	if cfg.PollerConfig().Enabled {
		all.Poller = g.senseCounts
	}
	if cfg.History.Enabled {
		all.History = func() telemetry.History {
			s := g.history.Stats()
			return telemetry.History{Signals: s.Signals, Samples: s.Samples, Refused: s.Refused, Behind: s.Behind, Bytes: s.Bytes, Recording: s.Stopped == ""}
		}
	}
	return all
}

// senseCounts is what is counted about readings.
func (g *gateway) senseCounts() telemetry.Poller {
	s := g.sense.Stats()
	return telemetry.Poller{
		Devices: s.Devices, Polls: s.Polls, BackingOff: s.BackingOff, Waiting: s.Waiting,
		Reads: s.Reads, Failures: s.Failures, Samples: s.Samples, Dropped: s.Dropped,
		Late: s.Late,
	}
}

// busCounts is what the bus counts.
func (g *gateway) busCounts() telemetry.Cluster {
	state, stats := g.bus.State(), g.bus.Stats()
	return telemetry.Cluster{
		Mode: string(state.Mode), Tenant: state.Tenant, Working: state.Working, Nodes: len(state.Nodes), Records: state.Waiting,
		Spooled: stats.Spooled, Lost: stats.Lost, Sending: stats.Sending, Serving: stats.Serving,
	}
}
