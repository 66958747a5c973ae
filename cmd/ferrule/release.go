package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func (a *app) releaseCommand() *cobra.Command {
	length := 2 * time.Minute
	cmd := &cobra.Command{
		Use:   "release DEVICE",
		Short: "Release a device's port, for example to flash it",
		Long: `Release a device's port, so that another program can use it, for example to flash new
firmware. The gateway closes the port and reconnects by itself when the time is up. Then
it reads the tools of the device again. Until then calls fail and say why.`,
		Example:           "  ferrule release robot\n  ferrule release robot --for 10m\n  ferrule release robot --for 0s   # reconnect now",
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			if length < 0 || length > builtin.MaxRelease {
				return usageError{fmt.Errorf("--for must be from 0s to %v, got %v", builtin.MaxRelease, length)}
			}
			in := builtin.ReleaseDeviceInput{Device: args[0], For: ferrule.Duration(length)}
			out, err := callGateway[builtin.ReleaseDeviceOutput](cmd.Context(), a, "release_device", in)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(out)
			case length == 0:
				fmt.Fprintf(a.stdout, "%s is no longer released.\n", out.Device)
			default:
				fmt.Fprintf(a.stdout, "%s is released until %s.\n", out.Device, ferrule.FormatTime(out.Until))
			}
			return nil
		},
	}
	cmd.Flags().Var((*durationFlag)(&length), "for", "release for this `duration`; 0s reconnects now")
	return cmd
}
