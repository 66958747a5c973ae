package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
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
			heads, rows := deviceTable(devices)
			return a.table(heads, rows, func(column, cell string) string {
				if column == "STATE" {
					return a.state(cell)
				}
				return cell
			})
		},
	}
}

// deviceTable is devices as a table. What they all have in common, or nobody has, is left
// out.
func deviceTable(devices []builtin.DescribedDevice) (heads string, rows [][]string) {
	type device = builtin.DescribedDevice
	some := func(so func(d device) bool) bool { return slices.ContainsFunc(devices, so) }
	columns := []struct {
		head  string
		there bool
		cell  func(d device) string
	}{
		{"DEVICE", true, func(d device) string { return d.ID }},
		{"STATE", true, func(d device) string { return d.State }},
		{"TRUST", true, func(d device) string { return d.Trust }},
		{"MODEL", true, func(d device) string { return d.Model }},
		{"VERSION", true, func(d device) string { return d.Version }},
		{"TOOLS", true, func(d device) string { return strconv.Itoa(d.Tools) }},
		{"RESOURCES", some(func(d device) bool { return d.Resources > 0 }), func(d device) string { return strconv.Itoa(d.Resources) }},
		{"PROMPTS", some(func(d device) bool { return d.Prompts > 0 }), func(d device) string { return strconv.Itoa(d.Prompts) }},
		{"NODE", some(func(d device) bool { return d.Node != devices[0].Node }), func(d device) string { return d.Node }},
		{"ADDRESS", true, func(d device) string { return d.Address }},
		{"REMARK", true, func(d device) string { return oneLine(remark(d), 200) }},
	}
	rows = make([][]string, len(devices))
	for _, c := range columns {
		if !c.there {
			continue
		}
		heads += " " + c.head
		for i, d := range devices {
			rows[i] = append(rows[i], c.cell(d))
		}
	}
	return heads[1:], rows
}

// devices lists all devices, page by page.
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

// remark is what is worth telling of a device in a list.
func remark(d builtin.DescribedDevice) string {
	switch {
	case d.State == string(ferrule.StateOffline) && d.Kind == "":
		return "not reached yet: " + d.Reason
	case d.State == string(ferrule.StateReleased):
		return d.Reason
	case d.State == string(ferrule.StateOffline):
		return "since " + d.Since.Local().Format(time.DateTime) + ": " + d.Reason
	case d.Trust == string(ferrule.TrustPending):
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
