package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/config"
	"github.com/ferrulehq/ferrule/dialect"
	"github.com/ferrulehq/ferrule/dialect/mcpu"
	"github.com/ferrulehq/ferrule/dock"
	"github.com/ferrulehq/ferrule/fleet"
	"github.com/ferrulehq/ferrule/front/control"
	"github.com/ferrulehq/ferrule/journal"
	"github.com/ferrulehq/ferrule/overlay"
	"github.com/ferrulehq/ferrule/pipeline"
	"github.com/ferrulehq/ferrule/toolbox"
	"github.com/ferrulehq/ferrule/wire"
	"github.com/ferrulehq/ferrule/wire/serial"
	"github.com/ferrulehq/ferrule/wire/tcp"
)

// gateway is a whole gateway: the parts and how they fit.
type gateway struct {
	log     *slog.Logger
	lock    *os.File
	memory  *dock.Memory
	journal *journal.Journal
	fleet   *fleet.Fleet
	dock    *dock.Dock
	road    *pipeline.Road
	handle  ferrule.Handler // the road's
	control *control.Server
	web     net.Listener
}

// newGateway builds the gateway of a data directory. It must be closed.
func newGateway(cfg config.Config, data string, log *slog.Logger) (*gateway, error) {
	g := &gateway{log: log}
	if err := g.build(cfg, data); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// build opens and makes the parts, as far as it can.
func (g *gateway) build(cfg config.Config, data string) (err error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if g.lock, err = lockData(data); err != nil {
		return err
	}
	if g.memory, err = dock.OpenMemory(data, g.log); err != nil {
		return err
	}
	journalConfig, err := cfg.JournalConfig()
	if err != nil {
		return err
	}
	if g.journal, err = journal.Open(data, journalConfig, g.log); err != nil {
		return err
	}
	overlays, err := readOverlays(cfg)
	if err != nil {
		return err
	}
	g.fleet = fleet.New(fleet.NewMemoryRegistry())
	g.dock = dock.New(dock.Parts{
		Config:     cfg.Dock(),
		Connectors: []wire.Connector{serial.New(cfg.Serial([]string{mcpu.Name})), tcp.New(cfg.TCP([]string{mcpu.Name}))},
		Dialects:   map[string]dialect.Dialect{mcpu.Name: mcpu.New()},
		Overlays:   overlays,
		Fleet:      g.fleet,
		Memory:     g.memory,
		Log:        g.log,
	})
	box, err := toolbox.New(version(),
		toolbox.ListDevices(g.fleet),
		toolbox.DescribeDevice(g.fleet),
		toolbox.AdoptDevice(g.dock),
		toolbox.ForgetDevice(g.dock),
		toolbox.ReleaseDevice(g.dock),
	)
	if err != nil {
		return err
	}
	g.fleet.Own(box.Device(), box.Manifest(), box.Handle)
	g.road = pipeline.New(pipeline.Parts{
		Config: cfg.Pipeline(), Journal: g.journal, Fleet: g.fleet, End: g.fleet.Handle, Log: g.log,
	})
	g.handle = g.road.Handle
	socket, err := control.SocketPath(data)
	if err != nil {
		return err
	}
	if g.control, err = control.Listen(socket, g.handle, g.dock, g.log); err != nil {
		return err
	}
	if g.web, err = net.Listen("tcp", cfg.Listen); err != nil {
		return fmt.Errorf("%w; --listen 127.0.0.1:0 takes any free port", err)
	}
	return nil
}

// readOverlays joins what the dialects say of their own with what the owner says.
func readOverlays(cfg config.Config) (*overlay.Set, error) {
	var files []*overlay.File
	for name, data := range map[string][]byte{mcpu.Name: mcpu.Overlay} {
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

// Run runs the gateway until ctx ends or a part fails.
func (g *gateway) Run(ctx context.Context) error {
	return runParts(ctx, g.dock.Run, g.control.Run, g.serveWeb)
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
