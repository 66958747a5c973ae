package main

import (
	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/observe"
)

// sources tell what the parts of the gateway count. They are asked once it runs.
func (g *gateway) sources() observe.Sources {
	return observe.Sources{
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
}

// busCounts is what the bus counts.
func (g *gateway) busCounts() observe.Bus {
	state, stats := g.bus.State(), g.bus.Stats()
	return observe.Bus{
		Mode: string(state.Mode), Tenant: state.Tenant, Working: state.Working, Nodes: len(state.Nodes), Records: state.Waiting,
		Spooled: stats.Spooled, Lost: stats.Lost, Sending: stats.Sending, Serving: stats.Serving,
	}
}
