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
		Short: "Let go of a device for a while, to flash it",
		Long: `Let go of a device, so that another program can have its port: to flash its
firmware, say. The gateway takes it back by itself when the time is over, and
finds out anew what it can do. Calls are refused meanwhile, and told why.`,
		Example:           "  ferrule release robot\n  ferrule release robot --for 10m\n  ferrule release robot --for 0s   # take it back now",
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			if length < 0 || length > builtin.MaxRelease {
				return usageError{fmt.Errorf("--for: want from 0s to %v, got %v", builtin.MaxRelease, length)}
			}
			in := builtin.ReleaseDeviceInput{Device: args[0], For: ferrule.Duration(length)}
			out, err := callGateway[builtin.ReleaseDeviceOutput](cmd.Context(), a, "release_device", in)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(out)
			case length == 0:
				fmt.Fprintf(a.stdout, "%s is with the gateway.\n", out.Device)
			default:
				fmt.Fprintf(a.stdout, "%s is released until %s.\n", out.Device, ferrule.FormatTime(out.Until))
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&length, "for", length, "a `duration`")
	return cmd
}
