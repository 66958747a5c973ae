package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func (a *app) stopCommand() *cobra.Command {
	var reason string
	cmd := a.haltCommand("stop", "Stop all changes, or those of some devices", `Stop everything, or some devices: changes are denied on all nodes, calls in queues are
ended, and the stop tools of devices are called (see "stop" in overlays). Reads go on.

The stop survives restarts, until somebody runs "ferrule resume". Calls that had been sent
may have run. A node that cannot be reached stops as soon as it hears of it.`, "  ferrule stop\n  ferrule stop robot pump --reason \"hand in the machine\"",
		func(cmd *cobra.Command, devices []string) (builtin.StopOutput, error) {
			return callGateway[builtin.StopOutput](cmd.Context(), a, ferrule.StopTool, builtin.StopInput{Devices: devices, Reason: reason})
		})
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for the people who resume")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	return a.haltCommand("resume", "Allow changes again after a stop", `Allow changes again, of everything or of some devices that were stopped. Calls that the
stop ended are not repeated. A stop that this node has not heard of stays in force.`, "  ferrule resume\n  ferrule resume robot",
		func(cmd *cobra.Command, devices []string) (builtin.StopOutput, error) {
			return callGateway[builtin.StopOutput](cmd.Context(), a, "resume_devices", builtin.ResumeInput{Devices: devices})
		})
}

func (a *app) haltCommand(name, short, long, example string, do func(cmd *cobra.Command, devices []string) (builtin.StopOutput, error)) *cobra.Command {
	return &cobra.Command{
		Use: name + " [DEVICE...]", Short: short, Long: long, Example: example, ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := do(cmd, args)
			switch {
			case err != nil:
				return err
			case a.json:
				err = a.printJSON(out)
			default:
				fmt.Fprintln(a.stdout, out.Summary)
				for _, note := range out.Notes {
					fmt.Fprintln(a.stdout, "  "+note)
				}
			}
			if out.Incomplete && err == nil {
				return errors.New("the stop is in force, but not everything about it succeeded; see what was printed, and check the devices")
			}
			return err
		},
	}
}
