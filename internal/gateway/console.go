package gateway

import (
	"fmt"

	"github.com/ferrulehq/ferrule/internal/console"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

// buildConsole builds the pages for people. They are served with HTTP.
func (g *Gateway) buildConsole() error {
	operations, err := api.New(api.Parts{
		Handle:  g.entry(telemetry.EntryConsole),
		Find:    g.findFor,
		Past:    g.past(),
		Calls:   g.Calls,
		Stop:    consoleStop{g},
		Devices: g.deviceParts(),
		Agents:  consoleAgents{g},
		Rules:   consoleRules{g},
		System:  g.systemParts(),
		Version: g.parts.Version,
		Log:     g.parts.Log,
	})
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	g.Console = console.New(console.Parts{
		API: operations, People: g.People, Fleet: g.Fleet, Streams: g.Cluster, Calls: g.Calls, Header: g.pageHeader, Version: g.parts.Version, Log: g.parts.Log,
	})
	g.undecided.stop = g.Cluster.Listen(func(ferrule.Event) {
		g.undecided.outdated()
		g.Console.ApprovalsChanged()
	}, ferrule.ApprovalEvent)
	return nil
}

// findFor returns a device that a person may see.
func (g *Gateway) findFor(who ferrule.Principal, id string) (api.Found, error) {
	dev, manifest, ok := listed{g}.Lookup(id)
	seen := g.visibility.Of(who)
	if !ok || dev.ID == ferrule.GatewayID || !who.CanSee(dev) || !seen.Device(dev, manifest) {
		return api.Found{}, ferrule.UnknownDevice(id)
	}
	return api.Found{Device: dev, Manifest: manifest, Stopped: listed{g}.Stopped(dev), Seen: seen}, nil
}

// past returns what the console reads about the past of devices.
func (g *Gateway) past() api.Past {
	p := api.Past{Calls: g.callLog(), Events: g.Cluster.Recent, Trace: g.Trace}
	if g.History != nil {
		p.Records = g.History
	}
	return p
}
