package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

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
		Long: `Show the journal: one line per call, with its time, caller, device, tool, arguments,
outcome and duration. Calls that only looked at something and succeeded are left out,
unless you add --all or name their tool. "no outcome" means that the gateway stopped
during the call, or that the call is still running: it may have run.

Calls are listed in the order in which they began. With --follow, new calls are listed
when they end, or after 10 minutes without an outcome.

With --json each record is shown whole, one per line. A call that changes something has
two: the intent, written before the device is contacted, and the outcome.

If the gateway runs and is part of a cluster, the journals of all nodes are shown, in
order of time. Otherwise the journal of the data directory is shown, which needs no
gateway.

` + timeHelp,
		Example: `  ferrule audit --last 20
  ferrule audit --device robot --since 2h
  ferrule audit --principal agent:local/claude-code --outcome error
  ferrule audit --outcome may-have-run --since 2026-01-31 --json
  ferrule audit --all --follow --last 5
  ferrule audit verify`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Records = a.json
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
	cmd.Flags().StringVar(&q.Principal, "principal", "", "only calls by this `caller`, such as agent:claude, person:anna or local")
	cmd.Flags().StringVar(&q.Outcome, "outcome", "", "only this `outcome`: ok, error, may-have-run, intent, or a code such as denied")
	cmd.Flags().StringVar(&q.Since, "since", "", "only records since this `time`")
	cmd.Flags().StringVar(&q.Until, "until", "", "only records before this `time`")
	cmd.Flags().StringVar(&q.Node, "node", "", "only the journals of this `node`")
	cmd.Flags().BoolVar(&q.Local, "local", false, "only the journal of the data directory")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "show new records until interrupted")
	cmd.Flags().BoolVar(&q.All, "all", false, "include calls that only looked, and checkpoints")
	cmd.Flags().IntVarP(&q.Last, "last", "n", 0, "only the last `N` calls, or records with --json")
	cmd.RegisterFlagCompletionFunc("device", a.completeDevice)
	cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(audit.Outcomes, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(a.auditVerifyCommand(), a.auditKeyCommand(), a.auditExportCommand())
	return cmd
}

// auditParts returns what an audit needs: without a client if it is local. It creates no
// files. The caller must call done.
func (a *app) auditParts(local bool) (parts audit.Parts, done func(), err error) {
	parts = audit.Parts{Data: a.dataDir(), Warn: func(text string) { fmt.Fprintln(a.stderr, text) }}
	if a.json {
		parts.Show = func(r audit.Record, _ bool) error { return json.NewEncoder(a.stdout).Encode(r) }
		parts.Flush = func() error { return nil }
	} else {
		table := &audit.Table{Out: a.stdout, Style: a.auditStyle}
		parts.Show, parts.Flush = table.Add, table.Flush
	}
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

// auditStyle marks outcomes other than ok.
func (a *app) auditStyle(column, cell string) string {
	switch {
	case column == "OUTCOME" && cell != "ok":
		return a.style(red, cell)
	case column == "TIME" || column == "CALLER":
		return a.style(faint, cell)
	}
	return cell
}
