package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// wantedPast is what is asked for, as it stands on the command line.
type wantedPast struct {
	since, until, each string
	csv                bool
	png                string
}

func (a *app) historyCommand() *cobra.Command {
	var w wantedPast
	cmd := &cobra.Command{
		Use:   "history DEVICE [SIGNAL...]",
		Short: "Show what was measured",
		Long: `Show what was measured of a device, of some of its signals or of all: a line for
each, with its last value and how old that is, its least, mean and largest value,
and a little curve. Where samples may be missing, the curve is broken.

With --csv or --json all points are written, in the finest grain of which there
are at most 10,000: samples, minutes or hours. --each says which, however many
there are. A minute or an hour has the mean as its value, and the least, the
largest and the number of its samples beside it. In CSV, a line without a value
tells where samples may be missing, from its time on, for how long, and why.

With --png a picture is drawn, for at most eight signals at once; it also shows
when the device was called.

A time is a duration back from now (90m, 2h, 7d), a date or a date and time here
(2026-01-31, "2026-01-31 15:04"), or RFC 3339 (2026-01-31T15:04:05Z).`,
		Example: `  ferrule history robot
  ferrule history robot light --since 10m --png light.png
  ferrule history robot light temperature --since 2026-01-31 --each hour --csv
  ferrule history robot light --since 2h --until 1h --each raw --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly(1)(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: a.completeSignal,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := w.check(a.json, args, time.Now())
			if err != nil {
				return usageError{err}
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			return kept(a.showPast(cmd.Context(), client, w, in))
		},
	}
	cmd.Flags().StringVar(&w.since, "since", "1h", "what is not older than a `time`")
	cmd.Flags().StringVar(&w.until, "until", "", "what is older than a `time`; now otherwise")
	cmd.Flags().StringVar(&w.each, "each", "", "write `raw` samples, minutes or hours")
	cmd.Flags().BoolVar(&w.csv, "csv", false, "write all points as CSV")
	cmd.Flags().StringVar(&w.png, "png", "", "draw a picture, to a `FILE` or, as -, to standard output")
	cmd.RegisterFlagCompletionFunc("each", cobra.FixedCompletions(grains, cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagFilename("png", "png")
	return cmd
}

// grains are what --each may be.
var grains = []string{string(ferrule.Raw), string(ferrule.Minutes), string(ferrule.Hours)}

// check is what is asked of the gateway.
func (w wantedPast) check(json bool, args []string, now time.Time) (in builtin.HistoryInput, err error) {
	in = builtin.HistoryInput{RangeInput: builtin.RangeInput{Device: args[0], Signals: args[1:]}, Resolution: w.each}
	from, err := parseTime(w.since, now)
	if err != nil {
		return in, fmt.Errorf("--since: %w", err)
	}
	to := now
	if w.until != "" {
		if to, err = parseTime(w.until, now); err != nil {
			return in, fmt.Errorf("--until: %w", err)
		}
	}
	formats := 0
	for _, wanted := range []bool{json, w.csv, w.png != ""} {
		if wanted {
			formats++
		}
	}
	switch {
	case !from.Before(to):
		return in, errors.New("--since is not before --until: nothing lies between them")
	case formats > 1:
		return in, errors.New("--csv, --json and --png exclude each other")
	case w.each != "" && !slices.Contains(grains, w.each):
		return in, fmt.Errorf("--each: want raw, minute or hour; got %q", w.each)
	case w.each != "" && !json && !w.csv:
		return in, errors.New("--each is for --csv and --json")
	}
	in.Since, in.Until = from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano)
	return in, nil
}

// showPast shows what is asked for.
func (a *app) showPast(ctx context.Context, client *control.Client, w wantedPast, in builtin.HistoryInput) error {
	if w.png != "" {
		return a.drawPast(ctx, client, w.png, in.RangeInput)
	}
	latest, err := callOwn[builtin.LatestOutput](ctx, client, "latest", builtin.LatestInput{Device: in.Device})
	if err != nil {
		return err
	}
	if latest.Signals, err = chosen(latest, in.Signals); err != nil {
		return err
	}
	ask := func(in builtin.HistoryInput) (builtin.HistoryOutput, error) {
		return callOwn[builtin.HistoryOutput](ctx, client, "history", in)
	}
	switch {
	case w.csv:
		return a.exportCSV(ask, in, latest.Signals)
	case a.json:
		return a.exportJSON(ask, in, latest.Signals)
	}
	return a.tablePast(ask, in, latest.Signals)
}

// chosen are the signals that are meant.
func chosen(latest builtin.LatestOutput, names []string) (signals []builtin.LatestSignal, err error) {
	if len(names) == 0 {
		return latest.Signals, nil
	}
	for _, name := range names {
		at := slices.IndexFunc(latest.Signals, func(s builtin.LatestSignal) bool { return s.Name == name })
		if at < 0 {
			return nil, ferrule.Errorf(ferrule.NotFound, "%s has no signal %q", latest.Device, name).
				WithHint("`ferrule history %s` shows those that it has", latest.Device)
		}
		signals = append(signals, latest.Signals[at])
	}
	return signals, nil
}

// drawPast has the gateway draw a picture, and writes it.
func (a *app) drawPast(ctx context.Context, client *control.Client, file string, span builtin.RangeInput) error {
	result, err := callTool(ctx, client, "plot", builtin.PlotInput{RangeInput: span})
	if err != nil {
		return err
	}
	var picture []byte
	var words string
	for _, c := range result.Content {
		switch c.Type {
		case ferrule.ImageContent:
			picture = c.Data
		case ferrule.TextContent:
			words = c.Text
		}
	}
	switch {
	case picture == nil:
		return errors.New("the gateway has drawn nothing")
	case file == "-" && isTerminal(a.stdout):
		return usageError{errors.New("--png -: a terminal cannot show it; name a file")}
	case file == "-":
		_, err = a.stdout.Write(picture)
		return err
	}
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, words)
	return err
}

// kept tells that nothing is kept, where the gateway has none of the tools.
func kept(err error) error {
	var e *ferrule.Error
	if errors.As(err, &e) && e.Code == ferrule.NotFound && strings.HasPrefix(e.Message, ferrule.GatewayID+" has no tool ") {
		return ferrule.Errorf(ferrule.NotFound, "the gateway keeps nothing of what is measured").
			WithHint("`history: {enabled: true}` in its configuration has it do so")
	}
	return err
}

// completeSignal offers devices, and then their signals.
func (a *app) completeSignal(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeDevice(cmd, args, toComplete)
	}
	latest, err := callGateway[builtin.LatestOutput](cmd.Context(), a, "latest", builtin.LatestInput{Device: args[0]})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var words []string
	for _, s := range latest.Signals {
		if !slices.Contains(args[1:], s.Name) {
			words = append(words, cobra.CompletionWithDesc(s.Name, number(s.Value)+" "+s.Unit))
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
