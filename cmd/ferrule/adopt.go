package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
)

func (a *app) adoptCommand() *cobra.Command {
	return a.trustCommand("adopt", "adopt_device", "is adopted", "Trust a device that was found",
		`Trust a device that was found rather than named. Until then it is listed, but nobody
can use it. The gateway remembers the decision.

To adopt a voice toy that shows a code, give the code instead of a name. The toy
connects within a few seconds.`, "  ferrule adopt robot\n  ferrule adopt 493817")
}

func (a *app) forgetCommand() *cobra.Command {
	return a.trustCommand("forget", "forget_device", "is forgotten", "Forget a device",
		`Forget a device: its name, its trust and its tools. If it is connected, it is treated
like a new device.

The credential of a device that dials in is revoked. The device gets another one when it
restarts, and has to be adopted again. Such a device can also be named by its address,
even if it was never online.`, "  ferrule forget robot")
}

func (a *app) trustCommand(name, tool, done, short, long, example string) *cobra.Command {
	return &cobra.Command{
		Use:               name + " DEVICE",
		Short:             short,
		Long:              long,
		Example:           example,
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := callGateway[builtin.TrustOutput](cmd.Context(), a, tool, builtin.TrustInput{Device: args[0]})
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
