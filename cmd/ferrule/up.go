package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

func (a *app) upCommand() *cobra.Command {
	var s starting
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the gateway",
		Long: `Run the gateway: it connects to the devices that are named, and serves them to
agents at /mcp and to the other commands, until it is interrupted. /healthz tells
its health, and /metrics what it does, for Prometheus.

A device gets a name with NAME= in front of its address. What is named on the
command line adds to what stands in the file. So do SERIAL_PORT, SERIAL_BAUD and
DEVICES in the environment, as MCP/U's own client reads them.`,
		Example: `  ferrule up --serial auto
  ferrule up --serial robot=/dev/ttyUSB0@115200 --tcp arm=192.168.1.20:4242
  ferrule up --config ./ferrule.yaml`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config()
			if err != nil {
				return usageError{err}
			}
			log := s.log(a.stderr)
			allowGarbage()
			g, err := newGateway(cfg, a.dataDir(), log)
			if errors.Is(err, errRunning) {
				g, err = a.replace(cmd.Context(), cfg, log, err)
			}
			if err != nil {
				return err
			}
			at := "nowhere"
			if g.web != nil {
				at = fmt.Sprintf("at http://%s/mcp", g.web.Addr())
			}
			log.Info(fmt.Sprintf("ferrule %s is up: MCP %s, data in %s", version(), at, a.dataDir()))
			err = g.Run(cmd.Context())
			return errors.Join(err, g.close())
		},
	}
	s.flags(cmd, config.Default().Listen+" otherwise")
	return cmd
}

// replace takes the place of a gateway that runs for an agent; its agent goes on
// with this one.
func (a *app) replace(ctx context.Context, cfg config.Config, log *slog.Logger, running error) (*gateway, error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	defer claimData(a.dataDir()).Close() // else the next agent's program would be the gateway for a moment
	for end := time.Now().Add(farewell); ; {
		if err := client.TakeOver(ctx); errors.Is(err, control.ErrNotHandedOver) || time.Now().After(end) {
			return nil, running
		}
		for range 10 {
			g, err := newGateway(cfg, a.dataDir(), log)
			if !errors.Is(err, errRunning) {
				return g, err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return nil, running
			}
		}
	}
}

// farewell is how long a gateway may take to end.
const farewell = 10 * time.Second
