package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/journal"
)

func (a *app) auditCommand() *cobra.Command {
	var device, tool string
	var last int
	var all bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who called what, and what came of it",
		Long: `Show the journal of the data directory: every call, by whom, with which
arguments, and its outcome. Before anything is changed, the intent is recorded.
The gateway need not be running. That somebody looked which devices there are is
left out, unless it is asked for.`,
		Example: "  ferrule audit --last 20\n  ferrule audit --device robot --json\n  ferrule audit verify",
		Args:    exactly(0),
		RunE: func(*cobra.Command, []string) error {
			if last < 0 {
				return usageError{fmt.Errorf("--last: want 0 or more, got %d", last)}
			}
			var entries []ferrule.Entry
			err := journal.Read(a.dataDir(), func(e ferrule.Entry) error {
				if device != "" && e.Device != device || tool != "" && e.Tool != tool {
					return nil
				}
				if looks[e.Tool] && e.Code == "" && e.Device == ferrule.GatewayID && device == "" && tool == "" && !all {
					return nil
				}
				if last > 0 && len(entries) == last {
					entries = append(entries[:0], entries[1:]...)
				}
				if last > 0 {
					entries = append(entries, e)
					return nil
				}
				return a.printEntry(e)
			})
			for _, e := range entries {
				err = errors.Join(err, a.printEntry(e))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&device, "device", "", "only calls of this `device`")
	cmd.Flags().StringVar(&tool, "tool", "", "only calls of this `tool`")
	cmd.Flags().BoolVar(&all, "all", false, "also what only looked at the gateway itself")
	cmd.Flags().IntVarP(&last, "last", "n", 0, "only the last `N` records")
	cmd.AddCommand(a.auditVerifyCommand())
	return cmd
}

// looks are the gateway's tools that only tell what there is. Commands call them
// all the time.
var looks = map[string]bool{"list_devices": true, "describe_device": true, "status": true}

func (a *app) printEntry(e ferrule.Entry) error {
	if a.json {
		return json.NewEncoder(a.stdout).Encode(e)
	}
	if e.Phase == ferrule.Gap {
		_, err := fmt.Fprintf(a.stdout, "%6d  %s  %s\n", e.Seq, e.Time.Local().Format(time.DateTime), e.Message)
		return err
	}
	outcome := string(e.Phase)
	if e.Phase == ferrule.Outcome {
		outcome = cmp.Or(string(e.Code), "ok")
		if e.MayHaveRun {
			outcome += " (may have run)"
		}
	}
	what := ferrule.Clean(fmt.Sprintf("%s %s %s", e.Device, e.Tool, e.Args), ferrule.MaxText)
	who := ferrule.Clean(e.Principal.String(), ferrule.MaxWord)
	_, err := fmt.Fprintf(a.stdout, "%6d  %s  %-28s  %s  %s\n", e.Seq, e.Time.Local().Format(time.DateTime),
		outcome, oneLine(what, ferrule.MaxText), a.style(faint, oneLine(who, ferrule.MaxWord)))
	return err
}

func (a *app) auditVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Check that the journal is whole",
		Long: `Check every record of the journal against its hash and its place. A record that
is missing, altered or out of order is named, and the exit code is 1.

That the newest records were cut off cannot be seen from the journal alone.`,
		Args: exactly(0),
		RunE: func(*cobra.Command, []string) error {
			report, err := journal.Verify(a.dataDir())
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(report)
			} else {
				fmt.Fprintf(a.stdout, "%d records.\n", report.Records)
				for _, f := range report.Findings {
					fmt.Fprintf(a.stdout, "line %d: %s\n", f.Line, f.What)
				}
			}
			if n := len(report.Findings); err == nil && n > 0 {
				err = fmt.Errorf("the journal is not whole: lines with something wrong: %d", n)
			}
			return err
		},
	}
}
