package main

import (
	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/config"
	"github.com/ferrulehq/ferrule/dialect/mcpu"
	"github.com/ferrulehq/ferrule/sense"
)

// makeSense has the devices of this node asked for what they measure, if that is wanted.
func (g *gateway) makeSense(cfg config.Config) {
	c := cfg.SenseConfig()
	if !c.Enabled {
		return
	}
	g.sense = sense.New(sense.Parts{
		Config: c, Handle: g.handle, Node: cfg.BusConfig().Node, Log: g.log,
		Grammars: map[string]func(*ferrule.Manifest) []ferrule.Probe{mcpu.Name: mcpu.Probes},
		Publish:  g.bus.Measured,
	})
	g.fleet.FollowOwn(g.sense)
}
