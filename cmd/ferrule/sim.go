package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/sim"
)

func (a *app) simCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate devices",
		Long:  "Simulate devices without hardware, well-behaved or not.",
	}
	cmd.AddCommand(a.simMCPUCommand(), a.simHTTPCommand(), a.simXiaozhiCommand(), a.simMQTTCommand())
	return parent(cmd)
}

func (a *app) simMCPUCommand() *cobra.Command {
	cfg := sim.Config{Count: 1}
	cmd := &cobra.Command{
		Use:   "mcpu",
		Short: "Simulate boards that speak MCP/U over TCP",
		Long: `Simulate an ESP32 that speaks MCP/U over TCP, until interrupted. It has an LED on pin 2,
a button on pin 0, a servo on pin 18, a temperature sensor on pin 34 and a light sensor
on pin 35. With --count there are several boards, on consecutive ports; port 0 uses any
free port.

With --misbehave the board misbehaves as real boards do, or worse:

` + sim.ListMisbehaviors(sim.BoardMisbehaviors()),
		Example: `  ferrule sim mcpu --tcp 127.0.0.1:4242
  ferrule sim mcpu --tcp 127.0.0.1:5000 --count 100
  ferrule sim mcpu --tcp 127.0.0.1:4242 --misbehave glued`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Check(); err != nil {
				return usageError{err}
			}
			fleet, err := sim.Listen(cfg)
			if err != nil {
				return err
			}
			a.printSimulated(sim.Simulated("an MCP/U board", fleet.Addrs()), sim.Addresses{Addresses: fleet.Addrs()})
			return fleet.Run(cmd.Context())
		},
	}
	simFlags(cmd, &cfg, "127.0.0.1:4242", "board", sim.BoardMisbehaviors())
	return cmd
}

func (a *app) simHTTPCommand() *cobra.Command {
	var cfg sim.WebConfig
	cmd := &cobra.Command{
		Use:   "http",
		Short: "Simulate a board that serves MCP over HTTP",
		Long: `Simulate an ESP32 that serves MCP over HTTP as mcpd does, until interrupted. It has the
pins of the board of ` + "`ferrule sim mcpu`" + `, and the habits of the original: it serves one
connection at a time and closes it after the response, waits five seconds for a client
that sends nothing or does not close, and has one session, which the next client takes
over. It speaks MCP 2025-11-25, whatever the client asks for.`,
		Example: `  ferrule sim http
  ferrule sim http --tcp 127.0.0.1:8081 --rate 10`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Rate < 0 {
				return usageError{fmt.Errorf("--rate must not be negative, got %d", cfg.Rate)}
			}
			board, err := sim.ListenWeb(cfg)
			if err != nil {
				return err
			}
			urls := []string{board.URL()}
			a.printSimulated(sim.Simulated("an MCP server", urls), sim.Addresses{Addresses: urls})
			return board.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&cfg.Addr, "tcp", "127.0.0.1:8080", "`HOST:PORT` of the board")
	cmd.Flags().IntVar(&cfg.Rate, "rate", 0, "number `N` of requests that are answered in a second; 0 for no limit")
	return cmd
}

// simFlags adds the flags that all simulations have.
func simFlags(cmd *cobra.Command, cfg *sim.Config, addr, device string, known []sim.Misbehavior) {
	cmd.Flags().StringVar(&cfg.Addr, "tcp", addr, "`HOST:PORT` of the first "+device)
	cmd.Flags().IntVar(&cfg.Count, "count", 1, "number `N` of "+device+"s")
	cmd.Flags().StringVar(&cfg.Misbehave, "misbehave", "", "`name` of a misbehavior")
	cmd.RegisterFlagCompletionFunc("misbehave", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, b := range known {
			names = append(names, cobra.CompletionWithDesc(b.Name, b.Text))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}
