package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func (a *app) auditCommand() *cobra.Command {
	var asked asked
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who called what, and what came of it",
		Long: `Show the journal: every call, by whom, with which arguments, and its outcome.
Before anything is changed, the intent is recorded. That somebody looked which
devices there are is left out, unless it is asked for.

If the gateway is one of several nodes and runs, the journals of all of them are
shown, in order of time. Otherwise it is the journal of the data directory, for
which no gateway need be running.

A time is a duration back from now (90m, 2h, 7d), a date or a date and time here
(2026-01-31, "2026-01-31 15:04"), or RFC 3339 (2026-01-31T15:04:05Z).`,
		Example: `  ferrule audit --last 20
  ferrule audit --device robot --since 2h
  ferrule audit --principal agent:claude --outcome error
  ferrule audit --outcome may-have-run --since 2026-01-31 --json
  ferrule audit --follow --last 5
  ferrule audit verify`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := asked.filter(time.Now())
			if err != nil {
				return usageError{err}
			}
			return a.audit(cmd.Context(), filter)
		},
	}
	asked.flags(cmd)
	cmd.RegisterFlagCompletionFunc("device", a.completeDevice)
	cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(outcomes, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(a.auditVerifyCommand())
	return cmd
}

// flags are the flags of what may be asked for.
func (q *asked) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&q.device, "device", "", "only calls of this `device`")
	cmd.Flags().StringVar(&q.tool, "tool", "", "only calls of this `tool`")
	cmd.Flags().StringVar(&q.principal, "principal", "", "only calls by this `caller`: agent:claude, or just claude")
	cmd.Flags().StringVar(&q.outcome, "outcome", "", "only what came out so: ok, error, may-have-run, intent, or a `code` such as denied")
	cmd.Flags().StringVar(&q.since, "since", "", "only what is not older than a `time`")
	cmd.Flags().StringVar(&q.until, "until", "", "only what is older than a `time`")
	cmd.Flags().StringVar(&q.node, "node", "", "only the journals of this `node`")
	cmd.Flags().BoolVar(&q.local, "local", false, "only the journal of the data directory")
	cmd.Flags().BoolVarP(&q.follow, "follow", "f", false, "go on with what comes, until interrupted")
	cmd.Flags().BoolVar(&q.all, "all", false, "also what only looked at the gateway itself")
	cmd.Flags().IntVarP(&q.last, "last", "n", 0, "only the last `N` records")
}

// record is a record, and whose it is.
type record struct {
	Node  string `json:"node,omitempty"`
	Chain string `json:"chain,omitempty"`
	ferrule.Entry
}

// printRecord prints a record, beginning with its node if that column has a width.
func (a *app) printRecord(r record, width int) error {
	if a.json {
		return json.NewEncoder(a.stdout).Encode(r)
	}
	begin := fmt.Sprintf("%6d  %s", r.Seq, r.Time.Local().Format(time.DateTime))
	if width > 0 {
		begin = fmt.Sprintf("%-*s %s", width, oneLine(ferrule.Clean(r.Node, ferrule.MaxWord), ferrule.MaxWord), begin)
	}
	if r.Phase == ferrule.JournalGap {
		_, err := fmt.Fprintf(a.stdout, "%s  %s\n", begin, oneLine(ferrule.Clean(r.Message, ferrule.MaxText), ferrule.MaxText))
		return err
	}
	asked := r.Tool
	if r.Operation != ferrule.CallTool {
		asked = string(r.Operation) + " " + asked
	}
	what := ferrule.Clean(fmt.Sprintf("%s %s %s", r.Device, asked, r.Args), ferrule.MaxText)
	who := ferrule.Clean(r.Principal.String(), ferrule.MaxWord)
	_, err := fmt.Fprintf(a.stdout, "%s  %-28s  %s  %s\n", begin,
		outcomeOf(r.Entry), oneLine(what, ferrule.MaxText), a.style(faint, oneLine(who, ferrule.MaxWord)))
	return err
}

// outcomeOf says in a word or two what came of a call.
func outcomeOf(e ferrule.Entry) string {
	if e.Phase != ferrule.Outcome {
		return string(e.Phase)
	}
	outcome := cmp.Or(string(e.Code), "ok")
	if e.MayHaveRun {
		outcome += " (may have run)"
	}
	return outcome
}

// nodeFile is where a gateway that is one of several nodes leaves its name, in its
// data directory.
const nodeFile = "node"

// nodeName is the name of the node that a data directory belongs to; empty if its
// gateway stands alone.
func nodeName(data string) string {
	name, err := os.ReadFile(filepath.Join(data, nodeFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}
