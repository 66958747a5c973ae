package gateway

import (
	"path/filepath"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/plot"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/measure/query"
)

// openHistory opens the store of measurements.
func (g *Gateway) openHistory() (err error) {
	if !g.parts.Config.History.Enabled {
		return nil
	}
	g.History, err = history.Open(filepath.Join(g.parts.Data, datadir.HistoryFile), g.parts.Config.HistoryConfig(), g.parts.Log)
	return err
}

// historyTools returns the tools that query measurements.
func (g *Gateway) historyTools() []builtin.Tool {
	if g.History == nil {
		return nil
	}
	measured := history.WithPast{Store: g.History, Source: g.pastSource}
	tools := []builtin.Tool{
		builtin.Latest(g.Fleet, g.visibility.Of, measured),
		builtin.History(g.Fleet, g.visibility.Of, measured),
		builtin.Plot(g.Fleet, g.visibility.Of, measured, g.callLog(), func(c builtin.Chart) ([]byte, error) { return plot.Draw(plot.Chart(c)) }),
	}
	self, err := query.Self()
	if err != nil { // a program cannot start itself without /proc
		g.parts.Log.Debug("SQL queries are not available on this system", "err", err)
		return tools
	}
	return append(tools, builtin.SQL(g.Fleet, g.visibility.Of, query.New(g.History.Path(), self, "ferrule", SQLCommand), query.Tables))
}

// pastSource returns the Home Assistant that a device is behind, and its address there; nil if
// there is none.
func (g *Gateway) pastSource(device string) (history.PastSource, string) {
	dev, _, ok := g.Fleet.Lookup(device)
	if !ok || dev.Hub == "" || g.Requests == nil {
		return nil, ""
	}
	if hub := g.Requests.homes.hub(dev.Hub); hub != nil {
		return hub, dev.Address
	}
	return nil, ""
}

// SQLCommand is the hidden command that answers one SQL query in a process of its own.
// The gateway runs it.
const SQLCommand = "answer-sql"

// buildPoller builds what records measurements of the devices of this node: those that they
// report by themselves, and those that the poller asks for.
func (g *Gateway) buildPoller() error {
	heard := poller.HeardParts{Publish: g.publish, Node: g.node(), Log: g.parts.Log}
	if g.History != nil {
		heard.History = g.History
	}
	g.heard = poller.NewHeard(heard)
	g.Fleet.WatchOwn(g.heard)
	c := g.parts.Config.PollerConfig()
	if !c.Enabled {
		return nil
	}
	parts := poller.Parts{
		Config: c, Handle: g.Pipeline.Handle, Node: g.node(), Log: g.parts.Log,
		Polls:   map[string]func(*ferrule.Manifest) []ferrule.Poll{mcpu.Name: mcpu.Polls, mcp.Name: mcpu.Polls},
		Publish: g.publish,
		Seen: func(r ferrule.Reading) {
			g.Conditions.Reading(r)
			g.Watches.Measured(r)
		},
	}
	if g.History != nil {
		parts.History = g.History
	}
	g.Poller = poller.New(parts)
	g.Fleet.WatchOwn(g.Poller)
	return nil
}

// publish passes on a reading of a device. It reports false if the reading was dropped
// because too many are waiting.
func (g *Gateway) publish(r ferrule.Reading) bool {
	g.Requests.brokers.measured(r)
	g.Watches.Measured(r)
	taken := g.Cluster.Measured(r)
	if taken {
		g.Telemetry.Record(r)
	}
	return taken
}
