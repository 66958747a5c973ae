package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/toolbox"
)

func (a *app) adoptCommand() *cobra.Command {
	return a.trustCommand("adopt", "adopt_device", "is adopted", "Trust a device that was found",
		`Trust a device that was found rather than named: until then people see it, and
nobody can use it. The device is remembered as trusted.`)
}

func (a *app) forgetCommand() *cobra.Command {
	return a.trustCommand("forget", "forget_device", "is forgotten", "Forget a device",
		`Forget a device: its name, its trust, what it was. If it is in sight, it is met
anew, as if it were seen for the first time.`)
}

func (a *app) trustCommand(name, tool, done, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:               name + " DEVICE",
		Short:             short,
		Long:              long,
		Example:           fmt.Sprintf("  ferrule %s robot", name),
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := callGateway[toolbox.TrustOutput](cmd.Context(), a, tool, toolbox.TrustInput{Device: args[0]})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(out)
			}
			fmt.Fprintf(a.stdout, "%s %s.\n", out.Device, done)
			return nil
		},
	}
}
