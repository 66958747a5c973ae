package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/sim"
)

func (a *app) simCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate devices",
		Long:  "Simulate devices without hardware, well behaved or not.",
	}
	cmd.AddCommand(a.simMCPUCommand())
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

` + behaviours(),
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
			if a.json {
				if err := a.printJSON(map[string]any{"addresses": fleet.Addrs()}); err != nil {
					return err
				}
			} else {
				for _, addr := range fleet.Addrs() {
					fmt.Fprintf(a.stdout, "simulating an MCP/U board at %s\n", addr)
				}
			}
			return fleet.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&cfg.Addr, "tcp", "127.0.0.1:4242", "where the first board listens, `HOST:PORT`")
	cmd.Flags().IntVar(&cfg.Count, "count", 1, "how many boards, `N`")
	cmd.Flags().StringVar(&cfg.Misbehave, "misbehave", "", "`name` of a misbehaviour")
	cmd.RegisterFlagCompletionFunc("misbehave", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, b := range sim.Behaviours() {
			names = append(names, cobra.CompletionWithDesc(b.Name, b.Text))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// behaviours lists the misbehaviours for the help.
func behaviours() string {
	var b strings.Builder
	for _, m := range sim.Behaviours() {
		fmt.Fprintf(&b, "  %-16s %s\n", m.Name, m.Text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
