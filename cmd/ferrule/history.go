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
	"github.com/ferrulehq/ferrule/internal/ops/export"
)

func (a *app) historyCommand() *cobra.Command {
	var flags export.Options
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
			flags.JSON = a.json
			in, err := flags.Check(args, time.Now())
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
	cmd.Flags().StringVar(&flags.Since, "since", "1h", "from this `time` on")
	cmd.Flags().StringVar(&flags.Until, "until", "", "before this `time`; default now")
	cmd.Flags().StringVar(&flags.Resolution, "resolution", "", "`resolution` of --csv and --json: raw, minute or hour")
	cmd.Flags().BoolVar(&flags.CSV, "csv", false, "print all points as CSV")
	cmd.Flags().StringVar(&flags.PNG, "png", "", "write a chart to a `FILE`, or to standard output with -")
	cmd.Flags().StringVar(&flags.Size, "size", "", "size of the chart in pixels: `WIDTHxHEIGHT`")
	cmd.RegisterFlagCompletionFunc("resolution", cobra.FixedCompletions(export.Resolutions, cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagFilename("png", "png")
	return cmd
}

func (a *app) showHistory(ctx context.Context, client *control.Client, flags export.Options, in builtin.HistoryInput) error {
	if flags.PNG != "" {
		chart := builtin.PlotInput{RangeInput: in.RangeInput}
		chart.Width, chart.Height, _ = flags.Pixels() // checked before
		if flags.Until == "" {
			chart.Until = "" // the chart may end with the last value
		}
		return a.writeChart(ctx, client, flags.PNG, chart)
	}
	latest, err := control.CallBuiltin[builtin.LatestOutput](ctx, client, "latest", builtin.LatestInput{Device: in.Device})
	if err != nil {
		return err
	}
	if latest.Signals, err = export.Select(latest, in.Signals); err != nil {
		return err
	}
	query := func(in builtin.HistoryInput) (builtin.HistoryOutput, error) {
		return control.CallBuiltin[builtin.HistoryOutput](ctx, client, "history", in)
	}
	switch {
	case flags.CSV:
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
