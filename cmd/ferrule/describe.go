package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ops/devicetext"
)

func (a *app) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe DEVICE",
		Short: "Show everything about a device",
		Long: `Show everything about a device: what it is, where it is connected, whether it is trusted,
its tools with their arguments and effects, its pins, and what it measures. Signals are
listed if the gateway records measurements.`,
		Example:           "  ferrule describe robot\n  ferrule describe robot --json",
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, err := a.describe(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d := devicetext.Description{DescribeDeviceOutput: about, Signals: []builtin.LatestSignal{}}
			// A gateway without measurements does not have the tool.
			if latest, err := callGateway[builtin.LatestOutput](cmd.Context(), a, "latest", builtin.LatestInput{Device: args[0]}); err == nil {
				d.Signals = latest.Signals
			}
			if a.json {
				return a.printJSON(d)
			}
			_, err = fmt.Fprint(a.stdout, d.Print(a.style))
			return err
		},
	}
}
