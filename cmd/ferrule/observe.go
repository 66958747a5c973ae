package main

import (
	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/config"
	"github.com/ferrulehq/ferrule/observe"
	"github.com/ferrulehq/ferrule/sense"
)

// sources tell what the parts of the gateway count. They are asked once it runs.
func (g *gateway) sources(cfg config.Config) observe.Sources {
	all := observe.Sources{
		Devices: func(fn func(*ferrule.Device)) { g.fleet.EachOwn(fn) },
		Lanes: func() observe.Lanes {
			s := g.dock.Stats()
			return observe.Lanes{Busy: s.Busy, Waiting: s.Waiting}
		},
		Cache: func() observe.Cache {
			s := g.road.Stats()
			return observe.Cache{Hits: s.CacheHits, Misses: s.CacheMisses, Entries: s.CacheEntries, Bytes: s.CacheBytes, Limited: s.Limited}
		},
		Sessions: func() int { return g.agents.Sessions() },
		Bus:      g.busCounts,
		Journal: func() observe.Journal {
			s := g.journal.Stats()
			return observe.Journal{Records: s.Records, Failures: s.Failures, Bytes: s.Bytes, Healthy: g.journal.Health() == nil}
		},
	}
	if cfg.SenseConfig().Enabled {
		all.Sense = g.senseCounts
	}
	if cfg.History.Enabled {
		all.History = func() observe.History {
			s := g.history.Stats()
			return observe.History{Signals: s.Signals, Samples: s.Samples, Refused: s.Refused, Behind: s.Behind, Bytes: s.Bytes, Recording: s.Stopped == ""}
		}
	}
	return all
}

// senseCounts is what is counted about readings.
func (g *gateway) senseCounts() observe.Sense {
	s := g.sense.Stats()
	return observe.Sense{
		Devices: s.Devices, Probes: s.Probes, BackingOff: s.BackingOff, Waiting: s.Waiting,
		Reads: s.Reads, Failures: s.Failures, Samples: s.Samples, Dropped: s.Dropped,
		LateBounds: sense.LateBounds[:], LateCounts: s.Late.Counts[:], LateSum: s.Late.Sum,
	}
}

// busCounts is what the bus counts.
func (g *gateway) busCounts() observe.Bus {
	state, stats := g.bus.State(), g.bus.Stats()
	return observe.Bus{
		Mode: string(state.Mode), Tenant: state.Tenant, Working: state.Working, Nodes: len(state.Nodes), Records: state.Waiting,
		Spooled: stats.Spooled, Lost: stats.Lost, Sending: stats.Sending, Serving: stats.Serving,
	}
}
