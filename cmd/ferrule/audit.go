package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

// timeHelp explains the times that flags take.
const timeHelp = `A time is a duration back from now (90m, 2h, 7d), a local date or date and time
(2026-01-31, "2026-01-31 15:04"), or RFC 3339 (2026-01-31T15:04:05Z).`

func (a *app) auditCommand() *cobra.Command {
	var q audit.Query
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who called what, and the outcome",
		Long: `Show the journal: every call, who made it, its arguments and its outcome. A call that
changes something has two records: the intent, written before the device is contacted,
and the outcome. Calls that only read the gateway's state are left out, unless you add
--all.

If the gateway runs and is part of a cluster, the journals of all nodes are shown, in
order of time. Otherwise the journal of the data directory is shown, which needs no
gateway.

` + timeHelp,
		Example: `  ferrule audit --last 20
  ferrule audit --device robot --since 2h
  ferrule audit --principal agent:stdio --outcome error
  ferrule audit --outcome may-have-run --since 2026-01-31 --json
  ferrule audit --follow --last 5
  ferrule audit verify`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := q.Filter(time.Now())
			if err != nil {
				return usageError{err}
			}
			parts, done, err := a.auditParts(q.Local)
			if err != nil {
				return err
			}
			defer done()
			if err = audit.Read(cmd.Context(), parts, filter); errors.Is(err, audit.ErrAlone) {
				return usageError{err}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&q.Device, "device", "", "only calls of this `device`")
	cmd.Flags().StringVar(&q.Tool, "tool", "", "only calls of this `tool`")
	cmd.Flags().StringVar(&q.Principal, "principal", "", "only calls by this `caller`, such as agent:stdio or claude")
	cmd.Flags().StringVar(&q.Outcome, "outcome", "", "only this `outcome`: ok, error, may-have-run, intent, or a code such as denied")
	cmd.Flags().StringVar(&q.Since, "since", "", "only records since this `time`")
	cmd.Flags().StringVar(&q.Until, "until", "", "only records before this `time`")
	cmd.Flags().StringVar(&q.Node, "node", "", "only the journals of this `node`")
	cmd.Flags().BoolVar(&q.Local, "local", false, "only the journal of the data directory")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "show new records until interrupted")
	cmd.Flags().BoolVar(&q.All, "all", false, "include calls that only read the gateway's state")
	cmd.Flags().IntVarP(&q.Last, "last", "n", 0, "only the last `N` records")
	cmd.RegisterFlagCompletionFunc("device", a.completeDevice)
	cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(audit.Outcomes, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(a.auditVerifyCommand())
	return cmd
}

// auditParts returns what an audit needs: without a client if it is local. It creates no
// files. The caller must call done.
func (a *app) auditParts(local bool) (parts audit.Parts, done func(), err error) {
	parts = audit.Parts{Data: a.dataDir(), Show: a.printRecord, Warn: func(text string) { fmt.Fprintln(a.stderr, text) }}
	if local {
		return parts, func() {}, nil
	}
	path, err := control.FindSocket(a.dataDir())
	if err != nil {
		return parts, nil, err
	}
	client := control.NewClient(path, a.service()...)
	parts.Nodes = client
	return parts, client.Close, nil
}

// printRecord prints a record. If width is not 0, its node comes first.
func (a *app) printRecord(r audit.Record, width int) error {
	if a.json {
		return json.NewEncoder(a.stdout).Encode(r)
	}
	begin := fmt.Sprintf("%6d  %s", r.Seq, r.Time.Local().Format(time.DateTime))
	if width > 0 {
		begin = fmt.Sprintf("%-*s %s", width, ferrule.OneLine(ferrule.Clean(r.Node, ferrule.MaxWord), ferrule.MaxWord), begin)
	}
	if r.Phase == ferrule.JournalGap {
		_, err := fmt.Fprintf(a.stdout, "%s  %s\n", begin, ferrule.OneLine(ferrule.Clean(r.Message, ferrule.MaxText), ferrule.MaxText))
		return err
	}
	name := r.Tool
	if r.Operation != ferrule.CallTool {
		name = string(r.Operation) + " " + name
	}
	what := ferrule.Clean(fmt.Sprintf("%s %s %s", r.Device, name, r.Args), ferrule.MaxText)
	who := ferrule.Clean(r.Principal.String(), ferrule.MaxWord)
	_, err := fmt.Fprintf(a.stdout, "%s  %-28s  %s  %s\n", begin,
		audit.OutcomeOf(r.Entry), ferrule.OneLine(what, ferrule.MaxText), a.style(faint, ferrule.OneLine(who, ferrule.MaxWord)))
	return err
}
