package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
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
				a.printTools(about)
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
				fmt.Fprintln(a.stdout, noDevices)
			}
			for _, about := range all {
				a.printTools(about)
			}
			return nil
		},
	}
}

func (a *app) describe(ctx context.Context, device string) (builtin.DescribeDeviceOutput, error) {
	return callGateway[builtin.DescribeDeviceOutput](ctx, a, "describe_device", builtin.DescribeDeviceInput{Device: device})
}

func (a *app) printTools(about builtin.DescribeDeviceOutput) {
	d := about.Device
	fmt.Fprintf(a.stdout, "%s  ", a.style(bold, d.ID))
	if d.Model != "" {
		fmt.Fprintf(a.stdout, "%s %s  ", d.Model, d.Version)
	}
	fmt.Fprintln(a.stdout, a.state(d.State))
	if text := d.LabelText(); text != "" {
		fmt.Fprintf(a.stdout, "  labels: %s\n", text)
	}
	if text := d.Remark(); text != "" && d.State != string(ferrule.StateOnline) {
		fmt.Fprintf(a.stdout, "  %s\n", text)
	}
	for _, note := range d.Notes {
		fmt.Fprintf(a.stdout, "  note: %s\n", note)
	}
	if len(about.Tools) == 0 {
		fmt.Fprintln(a.stdout, "  no tools")
	}
	pending := d.Trust == string(ferrule.TrustPending) // then schemas and overlays are not read
	if pending && len(about.Tools) > 0 {
		fmt.Fprintf(a.stdout, "  pending: run `ferrule adopt %s` to use it and to see effects and arguments\n", d.ID)
	}
	for _, t := range about.Tools {
		if pending {
			fmt.Fprintf(a.stdout, "\n  %s\n", a.style(bold, t.Name))
		} else {
			fmt.Fprintf(a.stdout, "\n  %s  %s\n", a.style(bold, t.Name), a.style(faint, t.Traits()))
		}
		if t.Text != "" {
			fmt.Fprintf(a.stdout, "    %s\n", ferrule.OneLine(t.Text, 200))
		}
		if t.Quarantine != "" {
			fmt.Fprintf(a.stdout, "    %s %s\n", a.style(red, "cannot be used:"), t.Quarantine)
		}
		if t.Quarantine != "" || pending {
			continue
		}
		for _, line := range arguments.Describe(json.RawMessage(t.Input)) {
			fmt.Fprintf(a.stdout, "    %s\n", line)
		}
	}
	a.printNames("resources", about.Resources, about.MoreResources)
	a.printNames("prompts", about.Prompts, about.MorePrompts)
	fmt.Fprintln(a.stdout)
}

// printNames lists resources or prompts.
func (a *app) printNames(what string, names []string, more int) {
	if len(names)+more == 0 {
		return
	}
	fmt.Fprintf(a.stdout, "\n  %s\n", a.style(bold, what))
	for _, name := range names {
		fmt.Fprintf(a.stdout, "    %s\n", ferrule.OneLine(name, 200))
	}
	if more > 0 {
		fmt.Fprintf(a.stdout, "    and %d more\n", more)
	}
}
