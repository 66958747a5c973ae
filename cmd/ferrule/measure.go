package main

import (
	"context"
	"path/filepath"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// historyFile is where what was measured is kept, in the data directory.
const historyFile = "history.db"

// openHistory opens what was measured, if that is kept.
func (g *gateway) openHistory(cfg config.Config, data string) (err error) {
	if !cfg.History.Enabled {
		return nil
	}
	g.history, err = history.Open(filepath.Join(data, historyFile), cfg.HistoryConfig(), g.log)
	return err
}

// record keeps what is measured.
func (g *gateway) record(ctx context.Context) error { return g.history.Run(ctx, g.bus) }

// measured tells of a reading, unless there is no room for it.
func (g *gateway) measured(r ferrule.Reading) bool {
	taken := g.bus.Measured(r)
	if taken {
		g.observe.Record(r)
	}
	return taken
}

// makeSense has the devices of this node asked for what they measure, if that is wanted.
func (g *gateway) makeSense(cfg config.Config) {
	c := cfg.PollerConfig()
	if !c.Enabled {
		return
	}
	parts := poller.Parts{
		Config: c, Handle: g.handle, Node: cfg.ClusterConfig().Node, Log: g.log,
		Polls:   map[string]func(*ferrule.Manifest) []ferrule.Poll{mcpu.Name: mcpu.Polls},
		Publish: g.measured,
	}
	if g.history != nil {
		parts.History = g.history
	}
	g.sense = poller.New(parts)
	g.fleet.WatchOwn(g.sense)
}
