package gateway

import (
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

// sources returns the counters of the parts. They are read only while the gateway runs.
func (g *Gateway) sources() telemetry.Sources {
	cfg := g.parts.Config
	all := telemetry.Sources{
		Devices: func(fn func(*ferrule.Device)) { g.Fleet.EachOwn(fn) },
		Lanes: func() telemetry.Lanes {
			s := g.Dock.Stats()
			return telemetry.Lanes{Busy: s.Busy, Waiting: s.Waiting}
		},
		Cache: func() telemetry.Cache {
			s := g.Pipeline.Stats()
			return telemetry.Cache{Hits: s.CacheHits, Misses: s.CacheMisses, Entries: s.CacheEntries, Bytes: s.CacheBytes, Limited: s.Limited}
		},
		Sessions: func() int { return g.Agents.Sessions() },
		Tasks:    func() map[ferrule.TaskStatus]int { return g.taskRecords.Counts() },
		Stop:     g.stopCounts,
		Cluster:  g.clusterCounts,
		Journal: func() telemetry.Journal {
			s := g.Journal.Stats()
			return telemetry.Journal{Records: s.Records, Failures: s.Failures, Bytes: s.Bytes, Healthy: g.Journal.Health() == nil}
		},
	}
	if cfg.PollerConfig().Enabled {
		all.Poller = g.pollerCounts
	}
	if cfg.History.Enabled {
		all.History = func() telemetry.History {
			s := g.History.Stats()
			return telemetry.History{Signals: s.Signals, Samples: s.Samples, Refused: s.Refused, Behind: s.Behind, Bytes: s.Bytes, Recording: s.Stopped == ""}
		}
	}
	return all
}

func (g *Gateway) pollerCounts() telemetry.Poller {
	s := g.Poller.Stats()
	return telemetry.Poller{
		Devices: s.Devices, Polls: s.Polls, BackingOff: s.BackingOff, Waiting: s.Waiting,
		Reads: s.Reads, Failures: s.Failures, Samples: s.Samples, Dropped: s.Dropped,
		Late: s.Late,
	}
}

func (g *Gateway) clusterCounts() telemetry.Cluster {
	state, stats := g.Cluster.State(), g.Cluster.Stats()
	return telemetry.Cluster{
		Mode: string(state.Mode), Tenant: state.Tenant, Working: state.Working, Nodes: len(state.Nodes), Records: state.Waiting,
		Spooled: stats.Spooled, Lost: stats.Lost, Sending: stats.Sending, Serving: stats.Serving,
	}
}
