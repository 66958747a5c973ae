package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/ops/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	var file string
	var listAll bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong on this machine",
		Long: `Find out what is wrong on this machine: with the data directory, the configuration,
the gateway, serial ports, boards, agent programs and the environment. Problems come
first, with what to do next; what is fine is one line. --all lists everything.

The configuration is the one that the gateway of the data directory has read. Agent
programs that are set up are tried out: the doctor starts their command, or connects to
their URL, and sends an MCP initialize.

The command works without a gateway, takes at most five seconds and changes nothing. It
does not open serial ports, because that resets boards. If a gateway runs, its journal
records that it was asked.

The exit code is 1 if something is wrong, else 0.`,
		Example: "  ferrule doctor\n  ferrule doctor --json",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := doctor.New(doctor.Parts{Data: a.dataDir(), File: file, Service: len(a.service()) > 0, Version: version(), FreeSpace: history.FreeSpace})
			return a.printFindings(d.Examine(cmd.Context()), listAll)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE` (default the one of the gateway)")
	cmd.Flags().BoolVar(&listAll, "all", false, "list everything, also what is fine")
	return cmd
}

// printFindings prints findings. It returns an error if something is wrong.
func (a *app) printFindings(all []doctor.Finding, listAll bool) error {
	report := doctor.Report{Version: version(), Findings: all}
	if a.json {
		return errors.Join(a.printJSON(report.Counted()), report.Err())
	}
	fmt.Fprint(a.stdout, report.Print(listAll, a.style))
	return report.Err()
}
