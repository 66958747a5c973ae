package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func (a *app) traceCommand() *cobra.Command {
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "trace DEVICE",
		Short: "Show the messages to and from a device",
		Long: `Show all messages to and from a device until interrupted:

  →  sent by the gateway
  ←  sent by the device
  ·  a remark of the gateway, such as why it dropped an answer`,
		Example:           "  ferrule trace robot\n  ferrule trace robot --for 10s --json",
		Args:              exactly(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel, err := lasting(cmd.Context(), length)
			if err != nil {
				return err
			}
			defer cancel()
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			if !a.json && isTerminal(a.stderr) {
				fmt.Fprintln(a.stderr, a.style(faint, "Tracing "+args[0]+". Press Ctrl-C to stop."))
			}
			return client.Trace(ctx, args[0], a.printTrace)
		},
	}
	cmd.Flags().Var((*durationFlag)(&length), "for", "stop after this `duration`")
	return cmd
}

var arrows = map[string]string{"out": "→", "in": "←", "note": "·"}

func (a *app) printTrace(t ferrule.Trace) {
	if a.json {
		json.NewEncoder(a.stdout).Encode(t)
		return
	}
	at := t.Time.Local().Format("15:04:05.000")
	if t.Direction != "note" {
		fmt.Fprintf(a.stdout, "%s %s %s\n", a.style(faint, at), arrows[t.Direction], t.Data)
	}
	if t.Note != "" {
		fmt.Fprintf(a.stdout, "%s %s %s\n", a.style(faint, at), arrows["note"], t.Note)
	}
}
