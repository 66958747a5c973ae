package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/front/agent"
)

func (a *app) mcpCommand() *cobra.Command {
	var s starting
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Run the gateway for an agent that starts its servers itself",
		Long: `Run the gateway, and speak MCP on standard input and output for the agent that
started it, until the agent goes away. Nothing else is written to standard
output; what is logged goes to standard error.`,
		Example: `  ferrule mcp --serial auto
  ferrule mcp --tcp arm=192.168.1.20:4242`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config()
			if err != nil {
				return usageError{err}
			}
			cfg.Listen = cmp.Or(s.listen, os.Getenv("FERRULE_LISTEN")) // other agents may have started a gateway, too
			log := s.log(a.stderr)
			g, err := newGateway(cfg, a.dataDir(), log)
			if err != nil {
				return err
			}
			log.Info(fmt.Sprintf("ferrule %s speaks MCP on standard input and output; data in %s", version(), a.dataDir()))
			err = g.Run(cmd.Context(), func(ctx context.Context) error {
				in, out := agent.Standard()
				return g.agents.Stdio(ctx, in, out)
			})
			return errors.Join(err, g.close())
		},
	}
	s.flags(cmd, "nowhere otherwise")
	return cmd
}
