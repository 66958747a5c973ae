package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/toolbox"
)

func (a *app) devicesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "devices",
		Short:   "List the devices",
		Long:    "List the devices: what they are, whether they can be reached, and if not, why.",
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
			if len(devices) == 0 {
				fmt.Fprintln(a.stdout, "No devices. `ferrule up --serial auto` finds what is plugged in, --tcp HOST:PORT names one, `ferrule sim mcpu` simulates one.")
				return nil
			}
			heads, node := "DEVICE STATE TRUST MODEL VERSION TOOLS ADDRESS REMARK", []string{}
			if several(devices) {
				heads, node = "DEVICE STATE TRUST MODEL VERSION TOOLS NODE ADDRESS REMARK", []string{""}
			}
			var rows [][]string
			for _, d := range devices {
				if len(node) > 0 {
					node[0] = d.Node
				}
				rows = append(rows, slices.Concat([]string{d.ID, d.State, d.Trust, d.Model, d.Version, strconv.Itoa(d.Tools)}, node, []string{d.Address, oneLine(remark(d), 200)}))
			}
			return a.table(heads, rows, func(column, cell string) string {
				if column == "STATE" {
					return a.state(cell)
				}
				return cell
			})
		},
	}
}

// several tells whether devices are of more than one node.
func several(devices []toolbox.DescribedDevice) bool {
	return slices.ContainsFunc(devices, func(d toolbox.DescribedDevice) bool { return d.Node != devices[0].Node })
}

// devices lists all devices, page by page.
func (a *app) devices(ctx context.Context) ([]toolbox.DescribedDevice, error) {
	devices := []toolbox.DescribedDevice{}
	in := toolbox.ListDevicesInput{Limit: 1000}
	for {
		page, err := callGateway[toolbox.ListDevicesOutput](ctx, a, "list_devices", in)
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

func (a *app) state(state string) string {
	if state == string(ferrule.StateOnline) {
		return a.style(green, state)
	}
	return a.style(red, state)
}

// remark is what is worth telling of a device in a list.
func remark(d toolbox.DescribedDevice) string {
	switch {
	case d.State == string(ferrule.StateOffline) && d.Kind == "":
		return "not reached yet: " + d.Reason
	case d.State == string(ferrule.StateReleased):
		return d.Reason
	case d.State == string(ferrule.StateOffline):
		return "since " + d.Since.Local().Format(time.DateTime) + ": " + d.Reason
	case d.Trust == string(ferrule.TrustHeld):
		return "`ferrule adopt " + d.ID + "` trusts it"
	case len(d.Notes) > 0:
		return d.Notes[0]
	case d.Changed != nil && time.Since(*d.Changed) < 24*time.Hour:
		return "became another Kind at " + d.Changed.Local().Format(time.TimeOnly)
	}
	return ""
}

// completeDevice offers the IDs of devices to a shell.
func (a *app) completeDevice(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	devices, err := a.devices(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, d := range devices {
		ids = append(ids, cobra.CompletionWithDesc(d.ID, d.Model+" "+d.State))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
