package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

func (a *app) mcpCommand() *cobra.Command {
	var s starting
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an agent that starts its servers itself",
		Long: `Speak MCP on standard input and output, for the agent that started this, until it
goes away. The gateway that runs on this machine is joined; where there is none,
this process becomes it, and if the one that was goes away, the next takes over,
and the agent's session goes on. Boards that are asked for here are asked for there.

Nothing but MCP is written to standard output. What is logged goes to mcp.log in
the data directory.`,
		Example: `  ferrule mcp --serial auto
  ferrule mcp --tcp arm=192.168.1.20:4242`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config()
			if err != nil {
				return usageError{err}
			}
			cfg.Listen = cmp.Or(s.listen, os.Getenv("FERRULE_LISTEN")) // others may have started a gateway, too
			allowGarbage()
			file, err := openLog(a.dataDir())
			if err != nil {
				return err
			}
			defer file.Close()
			log := s.log(file).With("pid", os.Getpid())
			if err = a.serveAgent(cmd.Context(), cfg, log); err != nil {
				log.Error("it ends", "err", err)
			}
			return err
		},
	}
	s.flags(cmd, "nowhere otherwise")
	return cmd
}

// logName is the file in the data directory that processes with an agent log to.
const logName = "mcp.log"

// openLog opens the log, which several processes write to. A large one is put
// aside.
func openLog(data string) (*os.File, error) {
	const most = 1 << 20
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	path := filepath.Join(data, logName)
	if info, err := os.Stat(path); err == nil && info.Size() > most {
		os.Rename(path, path+".old") // others go on writing to the old one
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// serveAgent serves the agent, and meanwhile holds the gateway or joins it.
func (a *app) serveAgent(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	d := newDesk(cfg, log)
	return runParts(ctx, func(ctx context.Context) error { return a.staff(ctx, d, cfg, log) }, d.Run)
}

// staff sees to it that the desk has a gateway, until ctx ends.
func (a *app) staff(ctx context.Context, d *desk, cfg config.Config, log *slog.Logger) error {
	const pause = 20 * time.Millisecond
	for ctx.Err() == nil {
		err := a.hold(ctx, d, cfg, log)
		if errors.Is(err, errRunning) {
			err = a.join(ctx, d, cfg, log)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// hold is the gateway, if nobody else is or is about to be, until ctx ends.
func (a *app) hold(ctx context.Context, d *desk, cfg config.Config, log *slog.Logger) error {
	if claimed(a.dataDir()) {
		return errRunning
	}
	g, err := newGateway(cfg, a.dataDir(), log)
	if err != nil {
		return err
	}
	log.Info(fmt.Sprintf("ferrule %s is the gateway now", version()), "data", a.dataDir())
	holding, end := context.WithCancel(ctx)
	defer end()
	g.end = end
	d.begin()
	stop := g.fleet.WatchDevices(d)
	defer g.bus.Listen(d.front.HandleEvent, ferrule.Notified)()
	d.relay.use(g.samples)
	defer d.relay.use(nil)
	d.Synced()
	d.open(g.observe.Entry(telemetry.EntryStdio, g.handle))
	d.front.HandleMissed(0) // what was said and measured meanwhile
	var left func()         // waits for the calls that are under way
	err = g.Run(holding, func(ctx context.Context) error {
		if err := g.wishes.Add(ctx, d.lastWishes()); err != nil && ctx.Err() == nil {
			log.Warn("a device that was asked for is not taken over", "err", err)
		}
		d.settled()
		<-ctx.Done()
		left = d.close() // before anything that calls need ends
		return nil
	})
	left()
	stop()
	err = errors.Join(err, g.close())
	if holding.Err() != nil && ctx.Err() == nil {
		log.Info("another process is to be the gateway")
	}
	return err
}

// join works with the gateway that runs, until it goes away or ctx ends. That it
// cannot be reached yet is no error: it may have just begun.
func (a *app) join(ctx context.Context, d *desk, cfg config.Config, log *slog.Logger) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	defer client.Close()
	defer func() { d.close() }()
	d.begin()
	defer d.keepWatching(ctx, client, "what devices say by themselves", control.Subscription{Event: d.front.HandleEvent, Missed: d.front.HandleMissed})()
	defer d.relay.use(nil)
	wishes := append(wishesOf(cfg), d.lastWishes()...) // that some are there twice makes no difference
	err = client.WatchFleet(ctx, wishes, joined{d, client.Handle, d.samplesOf(ctx, client)})
	switch {
	case errors.Is(err, control.ErrVersion):
		return err
	case !errors.Is(err, control.ErrNoGateway) && ctx.Err() == nil:
		log.Info("the gateway has gone", "err", err)
	}
	return nil
}

// joined is a desk that has joined a gateway.
type joined struct {
	*desk
	handle  ferrule.Handler
	samples server.Sampler
}

// Refused implements control.FleetWatcher.
func (j joined) Refused(reason string) {
	j.log.Warn("the gateway does not take a device that is asked for here", "err", reason)
}

// Synced implements control.FleetWatcher.
func (j joined) Synced() {
	j.log.Info("the gateway that is running was joined")
	j.desk.Synced()
	j.open(j.handle)
	j.relay.use(j.samples)
	j.front.HandleMissed(0) // what was measured meanwhile
	j.settled()
}
