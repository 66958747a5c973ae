package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/endpoint"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/cluster"
	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// gateway is a whole gateway: the parts and how they fit.
type gateway struct {
	log       *slog.Logger
	lock      *os.File
	observe   *telemetry.Telemetry
	memory    *dock.Store
	journal   *journal.Journal
	fleet     *fleet.Fleet
	bus       *cluster.Cluster
	door      *door // nil unless devices can dial in
	dock      *dock.Dock
	wishes    *wishes
	catalog   *catalog.Catalog
	road      *pipeline.Pipeline
	handle    ferrule.Handler // the road's
	decide    ferrule.Handler // serves decisions that people at other nodes make
	samples   server.Sampler  // what devices measure; nil if nobody tells
	agents    *server.Server
	endpoints []*endpoint.Endpoint
	sense     *poller.Poller // nil if nothing is measured
	history   *history.Store // nil if nothing of that is kept
	control   *control.Server
	web       net.Listener
	end       func() // ends it for another to take its place; nil if that is not to be
}

// newGateway builds the gateway of a data directory, with more media than the usual
// ones. It must be closed.
func newGateway(cfg config.Config, data string, log *slog.Logger, more ...transport.Connector) (*gateway, error) {
	g := &gateway{log: log}
	if err := g.build(cfg, data, more); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// build opens and makes the parts, as far as it can.
func (g *gateway) build(cfg config.Config, data string, more []transport.Connector) (err error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if g.lock, err = lockData(data); err != nil {
		return err
	}
	g.observe = telemetry.New(telemetry.Parts{
		Config: cfg.TelemetryConfig(), Node: cfg.ClusterConfig().Node, Version: version(), Sources: g.sources(cfg), Log: g.log,
	})
	meters := g.observe.Meters()
	if g.memory, err = dock.OpenStore(data, g.log); err != nil {
		return err
	}
	journalConfig, err := cfg.JournalConfig()
	if err != nil {
		return err
	}
	if g.journal, err = journal.Open(data, journalConfig, g.log); err != nil {
		return err
	}
	g.journal.OnSync(g.observe.Synced)
	overlays, err := readOverlays(cfg)
	if err != nil {
		return err
	}
	effective := overlay.NewCache(overlays)
	tokens, err := cfg.Tokens()
	if err != nil {
		return err
	}
	g.fleet = fleet.New(g.find)
	if g.bus, err = cluster.New(cluster.Parts{
		Config: cfg.ClusterConfig(), Dir: filepath.Join(data, "bus"), Fleet: g.fleet, Overlays: effective,
		Manifests: g.memory, Journal: g.journal, Serve: g.fleet.HandleOwn,
		Decide: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) { return g.decide(ctx, call) },
		Moved:  g.reconsider, Meters: meters, Version: version(), Log: g.log,
	}); err != nil {
		return err
	}
	g.fleet.WatchOwn(g.bus)
	g.catalog = catalog.New(cfg.Catalog())
	g.fleet.WatchDevices(g.catalog)
	g.wishes = newWishes(cfg, []string{mcpu.Name}, []string{mcp.Name}, g.log)
	connectors := append(g.wishes.connectors(), more...)
	toys := xiaozhi.Parts{Version: version()}
	if cfg.DialIn.Listen != "" {
		if g.door, err = openDoor(cfg.DialIn, data, g.log); err != nil {
			return err
		}
		connectors = append(connectors, g.door.connectors()...)
		toys.Pictures = g.door.vision
	}
	g.dock = dock.New(dock.Parts{
		Config:     cfg.Dock(),
		Connectors: connectors,
		Protocols:  map[string]protocol.Protocol{mcpu.Name: mcpu.New(), xiaozhi.Name: xiaozhi.New(toys), mcp.Name: mcp.New(mcp.Parts{Version: version()})},
		Overlays:   effective,
		Fleet:      g.fleet,
		Node:       cfg.ClusterConfig().Node,
		Remote:     g.bus,
		Store:      g.memory,
		OnEvent:    g.bus.Said,
		Meters:     meters,
		Log:        g.log,
	})
	g.wishes.settled = g.dock.Settled
	if err := g.openHistory(cfg, data); err != nil {
		return err
	}
	g.samples = g.bus
	box, err := builtin.New(version(), append(g.pastTools(data),
		builtin.ListDevices(g.fleet),
		builtin.DescribeDevice(g.fleet),
		builtin.DeviceState(g.fleet),
		builtin.AdoptDevice(trust{g}),
		builtin.ForgetDevice(trust{g}),
		builtin.ReleaseDevice(g.dock),
		builtin.Status(version(), g.status),
		builtin.FindDevices(g.catalog),
		builtin.FindTools(g.catalog),
		builtin.DescribeTool(g.catalog),
		builtin.CallMany(g.call),
	)...)
	if err != nil {
		return err
	}
	g.decide = decisions(box.Handle)
	g.fleet.PutBuiltin(box.Device(), box.Manifest(), g.whereItIs(box.Handle))
	g.road = pipeline.New(pipeline.Parts{
		Config: cfg.Pipeline(), Journal: g.journal, Fleet: g.fleet, Meters: meters, Log: g.log,
	})
	g.handle = g.road.Handle
	g.makeSense(cfg)
	g.agents = server.New(server.Parts{
		Config: cfg.AgentsConfig(), Catalog: g.catalog, Handle: g.observe.Entry(telemetry.EntryAgent, g.handle), Samples: g.samples, Tokens: tokens, Version: version(), Log: g.log,
	})
	g.bus.Listen(g.hear, ferrule.Notified)
	if err := g.makeEndpoints(cfg); err != nil {
		return err
	}
	socket, err := control.SocketPath(data)
	if err != nil {
		return err
	}
	parts := control.Parts{
		Handle: g.observe.Entry(telemetry.EntryControl, g.handle), Tracer: tracer{g}, Watcher: lookout{g}, Samples: g.samples, Fleet: g.fleet, DeviceRequests: g.wishes, HandOver: g.yield, Log: g.log,
	}
	if all := g.bus.Journals(); all != nil {
		parts.Journals = all
	}
	if g.control, err = control.Listen(socket, parts); err != nil {
		return err
	}
	if err := keepNodeName(data, g.bus.State()); err != nil {
		return err
	}
	if cfg.Listen == "" {
		return nil
	}
	if g.web, err = net.Listen("tcp", cfg.Listen); err != nil {
		return fmt.Errorf("%w; --listen 127.0.0.1:0 takes any free port", err)
	}
	return nil
}

// makeEndpoints makes the endpoints, at which the agents' front serves.
func (g *gateway) makeEndpoints(cfg config.Config) error {
	configs, err := cfg.EndpointConfigs()
	if err != nil {
		return err
	}
	for _, c := range configs {
		e, err := endpoint.New(endpoint.Parts{Config: c, Server: g.agents, Log: g.log})
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", c.Name, err)
		}
		g.endpoints = append(g.endpoints, e)
	}
	return nil
}

// readOverlays joins what the dialects say of their own with what the owner says.
func readOverlays(cfg config.Config) (*overlay.Set, error) {
	var files []*overlay.File
	for name, data := range map[string][]byte{mcpu.Name: mcpu.Overlay, xiaozhi.Name: xiaozhi.Overlay} {
		file, err := overlay.Parse(data)
		if err != nil {
			return nil, fmt.Errorf("the overlay of %s: %w", name, err)
		}
		files = append(files, file)
	}
	own, err := config.ReadOverlays(cfg.Overlays)
	if err != nil {
		return nil, fmt.Errorf("reading overlays: %w", err)
	}
	return overlay.NewSet(append(files, own...)...), nil
}

// Run runs the gateway, and more parts that need it, until ctx ends or a part
// does.
func (g *gateway) Run(ctx context.Context, more ...func(context.Context) error) error {
	parts := []func(context.Context) error{g.observe.Run, g.bus.Run, g.dock.Run, g.wishes.Run, g.agents.Run, g.control.Run}
	for _, e := range g.endpoints {
		parts = append(parts, e.Run)
	}
	if g.history != nil {
		parts = append(parts, g.record)
	}
	if g.sense != nil {
		parts = append(parts, g.sense.Run)
	}
	if g.web != nil {
		parts = append(parts, g.serveWeb)
	}
	if g.door != nil {
		parts = append(parts, g.door.Run)
	}
	return runParts(ctx, append(parts, more...)...)
}

// keepNodeName leaves in the data directory what its node is called among others, for
// commands that are run without the gateway.
func keepNodeName(data string, s cluster.State) error {
	path := filepath.Join(data, nodeFile)
	if s.Mode == cluster.Embedded {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	return os.WriteFile(path, []byte(s.Node+"\n"), 0o600)
}

// find looks for a device that the fleet was not told of.
func (g *gateway) find(id string) (fleet.Record, bool) {
	dev, laid, way, ok := g.bus.Find(id)
	return fleet.Record{Device: dev, Manifest: laid, Handler: way}, ok
}

// reconsider has the dock think about a device that another node has taken, or let
// go of.
func (g *gateway) reconsider(id string) { g.dock.Reconsider(id) }

// yield ends the gateway, if it was started for an agent.
func (g *gateway) yield() error {
	if g.end == nil {
		return errors.New("the gateway that is running was started by a person")
	}
	g.end()
	return nil
}

// call takes the road, for tools that make calls of their own.
func (g *gateway) call(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return g.handle(ctx, call)
}

// status counts what the status tool tells.
func (g *gateway) status() builtin.StatusOutput {
	n := g.catalog.Counts()
	_, shape := g.catalog.List()
	stats := g.road.Stats()
	out := builtin.StatusOutput{
		Online: n.Online, Offline: n.Offline, Released: n.Released, Pending: n.Pending, Kinds: n.Kinds, List: string(shape),
		Calls: builtin.Calls{CacheHits: stats.CacheHits, CacheMisses: stats.CacheMisses, CacheSize: stats.CacheEntries, Limited: stats.Limited},
	}
	if g.web != nil {
		out.Listen = g.web.Addr().String()
	}
	for _, e := range g.endpoints {
		if s := e.State(); !s.Connected {
			out.Endpoints = append(out.Endpoints, fmt.Sprintf("%s is not connected to %s since %s: %s", s.Name, s.Address, ferrule.FormatTime(s.Since), s.Reason))
		}
	}
	if g.history != nil {
		out.NotRecording = g.history.Stats().Stopped
	}
	if s := g.bus.State(); s.Mode != cluster.Embedded || !s.Working {
		out.Nodes = &builtin.Nodes{Node: s.Node, Tenant: s.Tenant, Others: s.Nodes, Working: s.Working, Since: s.Since, Reason: s.Why, Waiting: s.Waiting}
	}
	return out
}

// runParts starts parts in order, and stops them in reverse order when ctx ends
// or one of them does.
func runParts(ctx context.Context, parts ...func(context.Context) error) error {
	type running struct {
		cancel context.CancelFunc
		ended  chan error
	}
	any := make(chan struct{}, len(parts))
	var started []running
	for _, part := range parts {
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := running{cancel, make(chan error, 1)}
		go func() {
			r.ended <- part(partCtx)
			any <- struct{}{}
		}()
		started = append(started, r)
	}
	select {
	case <-ctx.Done():
	case <-any:
	}
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		started[i].cancel()
		errs = append(errs, <-started[i].ended)
	}
	return errors.Join(errs...)
}

// close lets go of what newGateway opened, in reverse order.
func (g *gateway) close() error {
	var errs []error
	if g.web != nil {
		g.web.Close()
	}
	if g.control != nil {
		g.control.Close()
	}
	if g.door != nil {
		errs = append(errs, g.door.close())
	}
	if g.history != nil {
		errs = append(errs, g.history.Close())
	}
	if g.journal != nil {
		errs = append(errs, g.journal.Close())
	}
	if g.memory != nil {
		errs = append(errs, g.memory.Close())
	}
	if g.lock != nil {
		errs = append(errs, g.lock.Close())
	}
	return errors.Join(errs...)
}
