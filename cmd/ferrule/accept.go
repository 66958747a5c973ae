package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/pinning"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
)

func (a *app) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff DEVICE",
		Short: "Show what changed since you accepted a device",
		Long: `Show how a device differs from what you accepted: tools, resources, prompts and pins that
were added, removed or changed, word by word. What is marked as waiting cannot be used
until you run "ferrule accept".`,
		Example:           "  ferrule diff robot\n  ferrule diff robot --json",
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := callGateway[pinning.Report](cmd.Context(), a, "device_changes", builtin.DeviceChangesInput{Device: args[0]})
			if err == nil {
				err = a.printReport(report)
			}
			return err
		},
	}
}

func (a *app) printReport(report pinning.Report) error {
	if a.json {
		return a.printJSON(report)
	}
	_, err := fmt.Fprint(a.stdout, report.Print(a.diffStyle))
	return err
}

// diffStyle is the style of a part of a pinning.Report.
func (a *app) diffStyle(op, text string) string {
	return a.style(map[string]string{pinning.Removed: red, pinning.Added: green, "": bold}[op], text)
}

func (a *app) acceptCommand() *cobra.Command {
	var kind string
	cmd := a.trustCommand("accept", "is accepted", "Accept the changes of a device",
		`Accept what a device says about itself now, so that all of it can be used. --kind names
what you have seen with "ferrule diff". Without it, the changes are shown and you are asked.
If the device changes again meanwhile, nothing is accepted.`,
		"  ferrule accept robot\n  ferrule accept robot --kind 88aa00ff1122",
		func(cmd *cobra.Command, device string) (out builtin.TrustOutput, err error) {
			if kind == "" {
				if kind, err = a.askToAccept(cmd, device); err != nil {
					return out, err
				}
			}
			return callGateway[builtin.TrustOutput](cmd.Context(), a, "accept_device", builtin.AcceptInput{Device: device, Kind: kind})
		})
	cmd.Flags().StringVar(&kind, "kind", "", "the offered `KIND`, or its first 12 digits, from \"ferrule diff\"")
	return cmd
}

// askToAccept shows the changes of a device, and returns the Kind that the person accepts.
func (a *app) askToAccept(cmd *cobra.Command, device string) (string, error) {
	if !isTerminal(os.Stdin) {
		return "", usageError{fmt.Errorf("add --kind with the Kind that `ferrule diff %s` shows", device)}
	}
	report, err := callGateway[pinning.Report](cmd.Context(), a, "device_changes", builtin.DeviceChangesInput{Device: device})
	if err != nil {
		return "", err
	}
	if err := a.printReport(report); err != nil || report.Offered == "" {
		return string(report.Accepted), err
	}
	fmt.Fprintf(a.stderr, "Accept all of it? [y/N] ")
	if answer := strings.ToLower(strings.TrimSpace(terminal.ReadLine(cmd.Context(), os.Stdin))); answer != "y" && answer != "yes" {
		return "", ferrule.Errorf(ferrule.Cancelled, "nothing was accepted: not confirmed")
	}
	return string(report.Offered), nil
}
