package main

import (
	"cmp"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

func (a *app) mcpCommand() *cobra.Command {
	var flags gatewayFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve MCP over stdio, for clients that launch their servers",
		Long: `Serve MCP on standard input and output, until the client disconnects. Clients such as
Claude Desktop run this command; ` + "`ferrule setup`" + ` writes it into their configuration.

The command joins the gateway that runs on this machine. If there is none, it becomes
the gateway, and other ` + "`ferrule mcp`" + ` processes join it. If the gateway ends, another
process takes over and the client's session continues. Devices that you name here are
added to the gateway.

Only MCP is written to standard output. The log is mcp.log in the data directory.`,
		Example: `  ferrule mcp --serial auto
  ferrule mcp --tcp arm=192.168.1.20:4242`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := flags.parts(a)
			if err != nil {
				return err
			}
			file, err := datadir.OpenLog(a.dataDir())
			if err != nil {
				return err
			}
			defer file.Close()
			// Several clients may start a gateway, so it serves HTTP only on request.
			parts.Config.Listen = cmp.Or(flags.Listen, os.Getenv("FERRULE_LISTEN"))
			parts.Log = slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: flags.level()})).With("pid", os.Getpid())
			gateway.TuneGC()
			in, out := server.Standard()
			if err = gateway.ServeStdio(cmd.Context(), parts, in, out); err != nil {
				parts.Log.Error("ferrule mcp ended", "err", err)
			}
			return err
		},
	}
	flags.add(cmd, "off")
	return cmd
}
