package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ops/devicetext"
)

func (a *app) devicesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "devices",
		Short:   "List the devices",
		Long:    "List the devices: what they are, whether they are online, and if not, why.",
		Example: "  ferrule devices\n  ferrule devices --json",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			devices, err := a.devices(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(devices)
			}
			status, _ := callGateway[builtin.StatusOutput](cmd.Context(), a, "status", builtin.StatusInput{})
			for _, problem := range slices.Concat(status.Brokers, status.Homes) { // their devices may be missing
				fmt.Fprintln(a.stderr, "Warning: "+problem)
			}
			if len(devices) == 0 {
				fmt.Fprintln(a.stdout, devicetext.None)
				return nil
			}
			header, rows := devicetext.Table(devices)
			return a.table(header, rows, func(column, cell string) string {
				if column == "STATE" {
					return devicetext.State(cell, a.style)
				}
				return cell
			}, "VERSION")
		},
	}
}

// devices returns all devices.
func (a *app) devices(ctx context.Context) ([]builtin.DescribedDevice, error) {
	devices := []builtin.DescribedDevice{}
	in := builtin.ListDevicesInput{Limit: 1000}
	for {
		page, err := callGateway[builtin.ListDevicesOutput](ctx, a, "list_devices", in)
		if err != nil {
			return nil, err
		}
		devices = append(devices, page.Devices...)
		if page.Next == "" {
			return devices, nil
		}
		in.After = page.Next
	}
}

// completeDevice completes the IDs of devices.
func (a *app) completeDevice(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(cmd.Use, "DEVICE...") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	devices, err := a.devices(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, d := range devices {
		if !slices.Contains(args, d.ID) {
			ids = append(ids, cobra.CompletionWithDesc(d.ID, strings.TrimSpace(d.Model+" "+d.State)))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
