package main

import (
	"errors"

	"github.com/spf13/cobra"

	devicecheck "github.com/ferrulehq/ferrule/internal/ops/check"
)

func (a *app) checkCommand() *cobra.Command {
	var o devicecheck.Options
	var p devicecheck.Printer
	cmd := &cobra.Command{
		Use:     "check TARGET",
		Short:   "Test the firmware of a device",
		Long:    devicecheck.Help,
		Example: "  ferrule check /dev/ttyACM0\n  ferrule check 192.168.1.20:4242 --junit report.xml\n  ferrule release robot -- ferrule check /dev/ttyACM0",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := devicecheck.ParseTarget(args[0])
			if err != nil {
				return usageError{err}
			}
			p.Out, p.Live, p.Style = a.stdout, a.terminal() != nil, a.style
			if a.json {
				p.JSON = a.printJSON
			}
			err = p.Run(cmd.Context(), target, o)
			if found := (devicecheck.FoundError{}); a.json && errors.As(err, &found) {
				return exitStatus(exitOther) // the report says everything
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&o.Actuate, "actuate", false, "also write the outputs of an MCP/U board")
	cmd.Flags().IntVar(&o.Baud, "baud", 0, "bit `RATE` of a serial port (default 115200)")
	cmd.Flags().StringVar(&p.JUnit, "junit", "", "also write a JUnit `FILE`, for CI")
	return cmd
}
