package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
)

func (a *app) renameCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rename DEVICE NAME",
		Short: "Rename a device",
		Long: `Rename a device. Agents and scripts that still use its old name reach it as before. A
device that is named in the configuration is renamed there.`,
		Example:           "  ferrule rename sim-board robot",
		Args:              exactly(2),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd.Context(), a, "rename_device", builtin.RenameInput{Device: args[0], Name: args[1]}, func(out builtin.RenameOutput) string {
				return fmt.Sprintf("%s is now %s. The old name still works.\n", out.Alias, out.Device)
			})
		},
	}
}

func (a *app) labelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "label DEVICE [KEY=VALUE | KEY-]...",
		Short: "Label a device",
		Long: `Label a device, for example with its room. KEY=VALUE sets a label, and KEY- removes it.
Without labels, the command prints those that the device has. Agents find devices by
their labels.`,
		Example:           "  ferrule label lamp room=kitchen\n  ferrule label lamp room-\n  ferrule label lamp",
		Args:              atLeastOne,
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			in := builtin.LabelInput{Device: args[0], Set: make(map[string]string)}
			for _, arg := range args[1:] {
				if key, value, ok := strings.Cut(arg, "="); ok {
					in.Set[key] = value
				} else if key, ok := strings.CutSuffix(arg, "-"); ok {
					in.Remove = append(in.Remove, key)
				} else {
					return usageError{fmt.Errorf("%q must be KEY=VALUE to set a label, or KEY- to remove it", arg)}
				}
			}
			out, err := callGateway[builtin.LabelOutput](cmd.Context(), a, "label_device", in)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(out)
			case len(out.Labels) == 0:
				fmt.Fprintf(a.stdout, "%s has no labels.\n", out.Device)
			}
			for _, key := range slices.Sorted(maps.Keys(out.Labels)) {
				fmt.Fprintf(a.stdout, "%s=%s\n", key, out.Labels[key])
			}
			return nil
		},
	}
}
