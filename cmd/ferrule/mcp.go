package main

import (
	"cmp"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/doctor"
	"github.com/ferrulehq/ferrule/internal/ops/logging"
)

func (a *app) mcpCommand() *cobra.Command {
	var flags gatewayFlags
	var service bool
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve MCP over stdio, for clients that launch their servers",
		Long: `Serve MCP on standard input and output, until the client disconnects. Clients such as
Claude Desktop run this command; ` + "`ferrule setup`" + ` writes it into their configuration.

The command joins the gateway that runs on this machine. If there is none, it becomes
the gateway, and other ` + "`ferrule mcp`" + ` processes join it. If the gateway ends, another
process takes over and the client's session continues. Devices that you name here are
added to the gateway.

If the packaged service runs, you are in its group, and no gateway of your own runs, the
command joins the service. With --service it never is the gateway: it waits for the
service.

Only MCP is written to standard output. The log is mcp.log in the data directory.`,
		Example: `  ferrule mcp --serial auto
  ferrule mcp --tcp arm=192.168.1.20:4242`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := flags.parts(a)
			if err != nil {
				return err
			}
			// Several clients may start a gateway, so it serves HTTP only on request.
			parts.Config.Listen = cmp.Or(flags.Listen, os.Getenv("FERRULE_LISTEN"))
			load := parts.Load
			parts.Load = func() (config.Config, error) {
				cfg, err := load()
				cfg.Listen = parts.Config.Listen
				return cfg, err
			}
			checked := os.Getenv(doctor.CheckVariable) != "" // the doctor opens no port and writes no file
			var log io.Writer = io.Discard
			if !checked {
				file, err := datadir.OpenLog(a.dataDir())
				if err != nil {
					return err
				}
				defer file.Close()
				log = file
			}
			parts.Log = logging.File(log, flags.level()).With("pid", os.Getpid())
			use, err := a.useService(cmd.Context())
			if use || service {
				parts.Socket = control.ServiceSocket
			} else if err != nil {
				parts.Log.Warn("the service of this machine is not used", "err", err)
			}
			if checked {
				parts.Config.Devices = config.Devices{}
				own, err := control.FindSocket(a.dataDir())
				if err != nil {
					return err
				}
				parts.Socket = cmp.Or(parts.Socket, own)
			}
			gateway.TuneGC()
			in, out := server.Standard()
			if err = gateway.ServeStdio(cmd.Context(), parts, in, out); err != nil {
				parts.Log.Error("ferrule mcp ended", "err", err)
			}
			return err
		},
	}
	flags.add(cmd, "off")
	cmd.Flags().BoolVar(&service, "service", false, "use the packaged service, and wait for it if it is not running")
	return cmd
}
