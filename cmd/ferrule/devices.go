package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
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
				fmt.Fprintln(a.stdout, noDevices)
				return nil
			}
			header, rows := deviceTable(devices)
			return a.table(header, rows, func(column, cell string) string {
				if column == "STATE" {
					return a.state(cell)
				}
				return cell
			}, "VERSION")
		},
	}
}

// noDevices is what commands print if there are no devices.
const noDevices = "No devices. Start the gateway with `ferrule up --serial auto` for boards that are plugged in, or try `ferrule sim mcpu`."

// deviceTable returns devices as a table. Columns that say nothing are left out: the node
// if all have the same, resources and prompts if there are none.
func deviceTable(devices []builtin.DescribedDevice) (header string, rows [][]string) {
	type device = builtin.DescribedDevice
	some := func(has func(d device) bool) bool { return slices.ContainsFunc(devices, has) }
	columns := []struct {
		name  string
		shown bool
		cell  func(d device) string
	}{
		{"DEVICE", true, func(d device) string { return d.ID }},
		{"TITLE", some(func(d device) bool { return d.OtherTitle() != "" }), device.OtherTitle},
		{"STATE", true, func(d device) string { return d.State }},
		{"TRUST", true, func(d device) string { return d.Trust }},
		{"MODEL", true, func(d device) string { return d.Model }},
		{"VERSION", true, func(d device) string { return d.Version }},
		{"TOOLS", true, func(d device) string { return strconv.Itoa(d.Tools) }},
		{"RESOURCES", some(func(d device) bool { return d.Resources > 0 }), func(d device) string { return strconv.Itoa(d.Resources) }},
		{"PROMPTS", some(func(d device) bool { return d.Prompts > 0 }), func(d device) string { return strconv.Itoa(d.Prompts) }},
		{"NODE", some(func(d device) bool { return d.Node != devices[0].Node }), func(d device) string { return d.Node }},
		{"LABELS", some(func(d device) bool { return d.LabelText() != "" }), device.LabelText},
		{"ADDRESS", true, func(d device) string { return d.Address }},
		{"REMARK", true, func(d device) string { return ferrule.OneLine(d.Remark(), 200) }},
	}
	rows = make([][]string, len(devices))
	for _, c := range columns {
		if !c.shown {
			continue
		}
		header += " " + c.name
		for i, d := range devices {
			rows[i] = append(rows[i], c.cell(d))
		}
	}
	return header[1:], rows
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

func (a *app) state(state string) string {
	if state == string(ferrule.StateOnline) {
		return a.style(green, state)
	}
	return a.style(red, state)
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
