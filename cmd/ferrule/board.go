package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/board"
	"github.com/ferrulehq/ferrule/internal/ops/logging"
)

func (a *app) boardCommand() *cobra.Command {
	cfg := board.Config{Version: version(), Log: logging.New(a.stderr, isTerminal(a.stderr), slog.LevelInfo)}
	cmd := &cobra.Command{
		Use: "board", Short: "Serve this Linux computer as a device", Long: board.Help, Args: exactly(0),
		Example: "  ferrule board --list\n  ferrule board\n  ferrule board --listen :8642 --token-file board.token --lines 'GPIO17,GPIO2*'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Check(); err != nil {
				return usageError{err}
			}
			return board.Run(cmd.Context(), cfg, func(v fmt.Stringer) error {
				if a.json {
					return a.printJSON(v)
				}
				_, err := fmt.Fprint(a.stdout, v)
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Listen, "listen", board.DefaultListen, "`HOST:PORT` to serve MCP over HTTP at")
	flags.StringVar(&cfg.TokenFile, "token-file", "", "`FILE` with the token that callers must know; made if it is missing")
	flags.BoolVar(&cfg.Anyone, "anyone", false, "let everyone in who can reach this computer")
	flags.StringArrayVar(&cfg.Hosts, "host", nil, "another host `NAME` of this computer, such as pi.fritz.box; can be repeated")
	flags.StringVar(&cfg.Name, "name", "", "`NAME` of the device (default the name of this computer)")
	flags.StringSliceVar(&cfg.Lines, "lines", nil, "`NAMES` of the GPIO lines to offer and to record from the start; * matches any part (default all)")
	flags.Var((*durationFlag)(&cfg.Poll), "poll", "how often gateways record sensors, as a `duration` (default 10s)")
	flags.BoolVar(&cfg.ListOnly, "list", false, "list the tools and exit")
	return cmd
}
