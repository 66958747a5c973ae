package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/sim"
)

func (a *app) simCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate devices",
		Long:  "Simulate devices without hardware, well behaved or not.",
	}
	cmd.AddCommand(a.simMCPUCommand(), a.simXiaozhiCommand())
	return parent(cmd)
}

func (a *app) simMCPUCommand() *cobra.Command {
	cfg := sim.Config{Count: 1}
	cmd := &cobra.Command{
		Use:   "mcpu --tcp HOST:PORT",
		Short: "Simulate boards that speak MCP/U over TCP",
		Long: `Simulate an ESP32 that speaks MCP/U over TCP, with an LED on pin 2, a button on
pin 0, a servo on pin 18, a temperature sensor on pin 34 and a light sensor on
pin 35, until interrupted. With --count there are several, at the ports that
follow; port 0 takes any.

With --misbehave the board does what real ones have been seen to do, or worse:

` + behaviours(boardBehaviours()),
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
			if err := a.printSimulated("an MCP/U board", fleet.Addrs()); err != nil {
				return err
			}
			return fleet.Run(cmd.Context())
		},
	}
	simFlags(cmd, &cfg, "127.0.0.1:4242", "board", boardBehaviours())
	return cmd
}

// printSimulated tells where devices were put.
func (a *app) printSimulated(what string, addrs []string) error {
	if a.json {
		return a.printJSON(map[string]any{"addresses": addrs})
	}
	for _, addr := range addrs {
		fmt.Fprintf(a.stdout, "simulating %s at %s\n", what, addr)
	}
	return nil
}

// simFlags are the flags of every simulation.
func simFlags(cmd *cobra.Command, cfg *sim.Config, addr, device string, known []behaviour) {
	cmd.Flags().StringVar(&cfg.Addr, "tcp", addr, "where the first "+device+" listens, `HOST:PORT`")
	cmd.Flags().IntVar(&cfg.Count, "count", 1, "how many "+device+"s, `N`")
	cmd.Flags().StringVar(&cfg.Misbehave, "misbehave", "", "`name` of a misbehaviour")
	cmd.RegisterFlagCompletionFunc("misbehave", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, b := range known {
			names = append(names, cobra.CompletionWithDesc(b.name, b.text))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// behaviour is a misbehaviour for the help.
type behaviour struct{ name, text string }

func boardBehaviours() (all []behaviour) {
	for _, b := range sim.Behaviors() {
		all = append(all, behaviour{b.Name, b.Text})
	}
	return all
}

// behaviours lists misbehaviours for the help.
func behaviours(all []behaviour) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "  %-16s %s\n", m.name, m.text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
