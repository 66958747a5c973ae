package gateway

import (
	"fmt"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Status returns what the status tool reports to people.
func (g *Gateway) Status() builtin.StatusOutput { return g.statusFor(ferrule.Principal{}) }

// statusFor returns what the status tool reports to a caller. One that is limited to some
// devices does not learn of others.
func (g *Gateway) statusFor(who ferrule.Principal) builtin.StatusOutput {
	n := g.Catalog.CountsFor(who)
	_, shape := g.Catalog.List()
	stats := g.Pipeline.Stats()
	out := builtin.StatusOutput{
		Online: n.Online, Offline: n.Offline, Released: n.Released, Pending: n.Pending, Kinds: n.Kinds, List: string(shape), Listen: g.Addr(), Stopped: g.Stop.Stopped().String(),
		Calls: builtin.Calls{CacheHits: stats.CacheHits, CacheMisses: stats.CacheMisses, CacheSize: stats.CacheEntries, Limited: stats.Limited},
	}
	for _, e := range g.Endpoints {
		if s := e.State(); !s.Connected && who.Devices == "" {
			out.Endpoints = append(out.Endpoints, fmt.Sprintf("%s is disconnected from %s since %s: %s", s.Name, s.Address, ferrule.FormatTime(s.Since), s.Reason))
		}
	}
	if who.Devices == "" {
		out.Brokers, out.Homes = g.Requests.brokers.problems(), g.Requests.homes.problems()
	}
	if who.Role != ferrule.Agent && who.Devices == "" {
		out.Hooks = g.Hooks.Problems()
	}
	if g.History != nil {
		out.NotRecording = g.History.Stats().Stopped
	}
	if s := g.Cluster.State(); s.Mode != cluster.Embedded || !s.Working {
		out.Nodes = &builtin.Nodes{Node: s.Node, Tenant: s.Tenant, Others: s.Nodes, Working: s.Working, Since: s.Since, Reason: s.Reason, Waiting: s.Waiting}
	}
	return out
}
