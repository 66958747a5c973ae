package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/logging"
)

func (a *app) upCommand() *cobra.Command {
	var flags gatewayFlags
	var groupSocket string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the gateway",
		Long: `Run the gateway until it is interrupted. It connects to the devices that you name
and offers them to agents at /mcp and to the other commands. /healthz reports its
health, and /metrics its metrics for Prometheus.

Put NAME= before an address to name a device. Devices on the command line are added
to those of the configuration file. So are SERIAL_PORT, SERIAL_BAUD and DEVICES in the
environment, which MCP/U's own client also reads.

The signal SIGHUP makes the gateway read its configuration again, as does ` + "`ferrule reload`" + `.`,
		Example: `  ferrule up --serial auto
  ferrule up --serial robot=/dev/ttyUSB0@115200 --tcp arm=192.168.1.20:4242
  ferrule up --config ./ferrule.yaml`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := flags.parts(a)
			if err != nil {
				return err
			}
			parts.Log, parts.GroupSocket = logging.New(a.stderr, isTerminal(a.stderr), flags.level()), groupSocket
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			closed := terminal.Watch(os.Stdin, os.Stdout, os.Stderr)
			gateway.TuneGC()
			g, err := gateway.TakeOver(cmd.Context(), parts)
			if err != nil {
				return err
			}
			agents := "off"
			if url := g.URL(); url != "" {
				agents = "at " + url + "/mcp"
			}
			parts.Log.Info(fmt.Sprintf("ferrule %s is up: MCP %s, data in %s", version(), agents, a.dataDir()))
			if isTerminal(a.stderr) { // a link is a secret, and not for a log
				fmt.Fprint(a.stderr, g.ConsoleLink(cmd.Context()))
			}
			err = g.Run(cmd.Context(), g.ReloadOn(hangup, closed))
			return errors.Join(err, g.Close())
		},
	}
	flags.add(cmd, config.Default().Listen)
	cmd.Flags().StringVar(&groupSocket, "group-socket", "", "also serve commands of this process's group at this socket `PATH`; the packaged service uses it")
	return cmd
}
