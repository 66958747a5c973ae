package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
	"github.com/ferrulehq/ferrule/internal/ops/export"
)

// historyFlags are the flags of `ferrule history`.
type historyFlags struct {
	since, until, resolution string
	csv                      bool
	png, size                string
}

func (a *app) historyCommand() *cobra.Command {
	var flags historyFlags
	cmd := &cobra.Command{
		Use:   "history DEVICE [SIGNAL...]",
		Short: "Show recorded measurements",
		Long: `Show the recorded measurements of a device, for some of its signals or all: the last
value and its age, the minimum, mean and maximum, and a small curve. The curve is broken
where samples may be missing.

With --csv or --json all points are printed, in the finest resolution with at most 10,000
points: raw samples, minutes or hours. With --resolution you choose the resolution, without a
limit. A minute or an hour has the mean as its value, and also the minimum, maximum and
number of its samples. In CSV, a line without a value is a gap: samples may be
missing from its time on, for the length and the reason in the last column.

With --png a chart of at most eight signals is drawn, over the time that has values. It also
marks calls of the device. --size sets its width and height in pixels.

` + timeHelp,
		Example: `  ferrule history robot
  ferrule history robot light --since 10m --png light.png --size 1600x600
  ferrule history robot light temperature --since 2026-01-31 --resolution hour --csv
  ferrule history robot light --since 2h --until 1h --resolution raw --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly(1)(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: a.completeSignal,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := flags.check(a.json, args, time.Now())
			if err != nil {
				return usageError{err}
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			return explainDisabled(a.showHistory(cmd.Context(), client, flags, in))
		},
	}
	cmd.Flags().StringVar(&flags.since, "since", "1h", "from this `time` on")
	cmd.Flags().StringVar(&flags.until, "until", "", "before this `time`; default now")
	cmd.Flags().StringVar(&flags.resolution, "resolution", "", "`resolution` of --csv and --json: raw, minute or hour")
	cmd.Flags().BoolVar(&flags.csv, "csv", false, "print all points as CSV")
	cmd.Flags().StringVar(&flags.png, "png", "", "write a chart to a `FILE`, or to standard output with -")
	cmd.Flags().StringVar(&flags.size, "size", "", "size of the chart in pixels: `WIDTHxHEIGHT`")
	cmd.RegisterFlagCompletionFunc("resolution", cobra.FixedCompletions(resolutions, cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagFilename("png", "png")
	return cmd
}

// resolutions are the values of --resolution.
var resolutions = []string{string(ferrule.Raw), string(ferrule.Minutes), string(ferrule.Hours)}

// check returns the query for the gateway.
func (f historyFlags) check(json bool, args []string, now time.Time) (in builtin.HistoryInput, err error) {
	in = builtin.HistoryInput{RangeInput: builtin.RangeInput{Device: args[0], Signals: args[1:]}, Resolution: f.resolution}
	from, err := audit.ParseTime(f.since, now)
	if err != nil {
		return in, fmt.Errorf("--since: %w", err)
	}
	to := now
	if f.until != "" {
		if to, err = audit.ParseTime(f.until, now); err != nil {
			return in, fmt.Errorf("--until: %w", err)
		}
	}
	formats := 0
	for _, set := range []bool{json, f.csv, f.png != ""} {
		if set {
			formats++
		}
	}
	switch {
	case !from.Before(to):
		return in, errors.New("--since must be before --until")
	case formats > 1:
		return in, errors.New("--csv, --json and --png exclude each other")
	case f.resolution != "" && !slices.Contains(resolutions, f.resolution):
		return in, fmt.Errorf("--resolution must be raw, minute or hour; got %q", f.resolution)
	case f.resolution != "" && !json && !f.csv:
		return in, errors.New("--resolution needs --csv or --json")
	case f.size != "" && f.png == "":
		return in, errors.New("--size needs --png")
	}
	if _, _, err := f.pixels(); err != nil {
		return in, err
	}
	in.Since, in.Until = from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano)
	return in, nil
}

// pixels returns the size of the chart; 0 for the default.
func (f historyFlags) pixels() (width, height int, err error) {
	if f.size == "" {
		return 0, 0, nil
	}
	if n, err := fmt.Sscanf(f.size+"\n", "%dx%d\n", &width, &height); n != 2 || err != nil || width < 1 || height < 1 {
		return 0, 0, fmt.Errorf("--size must be WIDTHxHEIGHT such as 1200x500, got %q", f.size)
	}
	return width, height, nil
}

func (a *app) showHistory(ctx context.Context, client *control.Client, flags historyFlags, in builtin.HistoryInput) error {
	if flags.png != "" {
		chart := builtin.PlotInput{RangeInput: in.RangeInput}
		chart.Width, chart.Height, _ = flags.pixels() // checked before
		if flags.until == "" {
			chart.Until = "" // the chart may end with the last value
		}
		return a.writeChart(ctx, client, flags.png, chart)
	}
	latest, err := control.CallBuiltin[builtin.LatestOutput](ctx, client, "latest", builtin.LatestInput{Device: in.Device})
	if err != nil {
		return err
	}
	if latest.Signals, err = selectSignals(latest, in.Signals); err != nil {
		return err
	}
	query := func(in builtin.HistoryInput) (builtin.HistoryOutput, error) {
		return control.CallBuiltin[builtin.HistoryOutput](ctx, client, "history", in)
	}
	switch {
	case flags.csv:
		return export.CSV(a.stdout, query, in, latest.Signals)
	case a.json:
		all, err := export.All(query, in, latest.Signals)
		if err != nil {
			return err
		}
		return a.printJSON(all)
	case len(latest.Signals) == 0:
		_, err := fmt.Fprintf(a.stdout, "No measurements of %s. A device is measured if it declares what it samples, or if an overlay names a tool to poll.\n", in.Device)
		return err
	}
	rows, err := export.Rows(query, in, latest.Signals)
	if err != nil {
		return err
	}
	return a.table(export.Header, rows, func(_, cell string) string { return cell })
}

// selectSignals returns the named signals, or all if none is named.
func selectSignals(latest builtin.LatestOutput, names []string) (signals []builtin.LatestSignal, err error) {
	if len(names) == 0 {
		return latest.Signals, nil
	}
	for _, name := range names {
		at := slices.IndexFunc(latest.Signals, func(s builtin.LatestSignal) bool { return s.Name == name })
		if at < 0 {
			var known []string
			for _, s := range latest.Signals {
				known = append(known, s.Name)
			}
			return nil, ferrule.Errorf(ferrule.NotFound, "%s has no signal %q%s", latest.Device, name, ferrule.DidYouMean(name, known)).
				WithHint("run `ferrule history %s` to list its signals", latest.Device)
		}
		signals = append(signals, latest.Signals[at])
	}
	return signals, nil
}

// writeChart writes a chart that the gateway draws.
func (a *app) writeChart(ctx context.Context, client *control.Client, file string, in builtin.PlotInput) error {
	result, err := client.Builtin(ctx, "plot", in)
	if err != nil {
		return err
	}
	var chart []byte
	var text string
	for _, c := range result.Content {
		switch c.Type {
		case ferrule.ImageContent:
			chart = c.Data
		case ferrule.TextContent:
			text = c.Text
		}
	}
	switch {
	case chart == nil:
		return errors.New("the gateway returned no chart")
	case file == "-" && isTerminal(a.stdout):
		return usageError{errors.New("--png - needs a pipe or a file: a terminal cannot show an image")}
	case file == "-":
		_, err = a.stdout.Write(chart)
		return err
	}
	if err := os.WriteFile(file, chart, 0o644); err != nil {
		return err
	}
	size, err := png.DecodeConfig(bytes.NewReader(chart))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "Wrote %s, %dx%d pixels.\n%s\n", file, size.Width, size.Height, text)
	return err
}

// explainDisabled explains the error of a gateway that does not record measurements: it
// does not have the tools.
func explainDisabled(err error) error {
	var e *ferrule.Error
	if errors.As(err, &e) && e.Code == ferrule.NotFound && strings.HasPrefix(e.Message, ferrule.GatewayID+" has no tool ") {
		return ferrule.Errorf(ferrule.NotFound, "the gateway does not record measurements").
			WithHint("set `history: {enabled: true}` in its configuration")
	}
	return err
}

// completeSignal completes devices, then their signals.
func (a *app) completeSignal(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeDevice(cmd, args, toComplete)
	}
	latest, err := callGateway[builtin.LatestOutput](cmd.Context(), a, "latest", builtin.LatestInput{Device: args[0]})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, s := range latest.Signals {
		if !slices.Contains(args[1:], s.Name) {
			names = append(names, cobra.CompletionWithDesc(s.Name, export.Number(s.Value)+" "+s.Unit))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
