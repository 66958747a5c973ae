package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ops/devicetext"
)

func (a *app) toolsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tools [DEVICE]",
		Short: "Show the tools of a device",
		Long: `Show the tools of a device, or of all devices: their arguments, their effect (reads,
changes or endangers), and why a tool cannot be used. Resources and prompts are listed
by name.`,
		Example:           "  ferrule tools robot\n  ferrule tools robot --json",
		Args:              atMostOne,
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				about, err := a.describe(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(about)
				}
				fmt.Fprint(a.stdout, devicetext.Tools(about, a.style))
				return nil
			}
			devices, err := a.devices(cmd.Context())
			if err != nil {
				return err
			}
			all := []builtin.DescribeDeviceOutput{}
			for _, d := range devices {
				about, err := a.describe(cmd.Context(), d.ID)
				if err != nil {
					return err
				}
				all = append(all, about)
			}
			if a.json {
				return a.printJSON(all)
			}
			if len(all) == 0 {
				fmt.Fprintln(a.stdout, devicetext.None)
			}
			for _, about := range all {
				fmt.Fprint(a.stdout, devicetext.Tools(about, a.style))
			}
			return nil
		},
	}
}

func (a *app) describe(ctx context.Context, device string) (builtin.DescribeDeviceOutput, error) {
	return callGateway[builtin.DescribeDeviceOutput](ctx, a, "describe_device", builtin.DescribeDeviceInput{Device: device})
}
