package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
)

func (a *app) adoptCommand() *cobra.Command {
	var in builtin.AdoptInput
	cmd := a.trustCommand("adopt", "is adopted", "Trust devices that were found",
		`Trust devices that were found rather than named. Until then they are listed, but nobody
can use them. The gateway remembers the decision.

To adopt a voice toy that shows a code, give the code instead of a name. The toy
connects within a few seconds. "ferrule devices" lists the toys that show a code.`,
		"  ferrule adopt robot\n  ferrule adopt robot --name arm\n  ferrule adopt bed-light kitchen-lights\n  ferrule adopt desk-lamp --kind\n  ferrule adopt 493817",
		func(cmd *cobra.Command, device string) (builtin.TrustOutput, error) {
			in.Device = device
			return callGateway[builtin.TrustOutput](cmd.Context(), a, "adopt_device", in)
		})
	cmd.Flags().StringVar(&in.Name, "name", "", "give the device this `NAME`")
	cmd.Flags().BoolVar(&in.Kind, "kind", false, "also adopt all devices of its Kind on the same broker or Home Assistant, now and later")
	return cmd
}

func (a *app) forgetCommand() *cobra.Command {
	var in builtin.TrustInput
	cmd := a.trustCommand("forget", "is forgotten", "Forget a device",
		`Forget a device: its name, its trust and its tools. If it is connected, it is treated
like a new device.

The credential of a device that dials in is revoked. The device gets another one when it
restarts, and has to be adopted again. Such a device can also be named by its address,
even if it was never online.`, "  ferrule forget robot\n  ferrule forget desk-lamp --kind",
		func(cmd *cobra.Command, device string) (builtin.TrustOutput, error) {
			in.Device = device
			return callGateway[builtin.TrustOutput](cmd.Context(), a, "forget_device", in)
		})
	cmd.Flags().BoolVar(&in.Kind, "kind", false, "forget all devices of its Kind on the same broker or Home Assistant, and that you adopted it")
	return cmd
}

func (a *app) trustCommand(name, done, short, long, example string, decide func(cmd *cobra.Command, device string) (builtin.TrustOutput, error)) *cobra.Command {
	return &cobra.Command{
		Use:               name + " DEVICE...",
		Short:             short,
		Long:              long,
		Example:           example,
		Args:              atLeastOne,
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, device := range args {
				out, err := decide(cmd, device)
				switch {
				case err != nil:
					return err
				case a.json:
					err = a.printJSON(out)
				default:
					_, err = fmt.Fprintln(a.stdout, strings.TrimSpace(fmt.Sprintf("%s %s.\n%s", out.Device, done, out.Note)))
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}
