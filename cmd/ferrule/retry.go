package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
)

func (a *app) retryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "retry DEVICE",
		Short: "Connect a device that is offline now",
		Long: `Connect a device that is offline now, instead of at the next attempt. The command
returns when the device is online, or says why it is not. A device that is online stays
connected.`,
		Example:           "  ferrule retry robot",
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd.Context(), a, "retry_device", builtin.RetryDeviceInput{Device: args[0]}, func(out builtin.RetryDeviceOutput) string {
				return fmt.Sprintf("%s is %s.\n", out.Device, out.State)
			})
		},
	}
}
