package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/config"
)

func (a *app) upCommand() *cobra.Command {
	var s starting
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the gateway",
		Long: `Run the gateway: it connects to the devices that are named, and serves them to
agents at /mcp and to the other commands, until it is interrupted. /healthz tells
its health.

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
			g, err := newGateway(cfg, a.dataDir(), log)
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
