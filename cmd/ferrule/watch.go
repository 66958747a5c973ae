package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/measure/gauges"
	"github.com/ferrulehq/ferrule/internal/ops/watchtext"
)

func (a *app) watchCommand() *cobra.Command {
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "watch [DEVICE]",
		Short: "Show events and measurements of devices, live",
		Long: `Show the events of a device, or of all devices, until interrupted: online, offline and
why, a new Kind, found and not adopted, tools that cannot be used, and notifications. If
the gateway is part of a cluster, the devices of all nodes are shown.

For one device, measurements are shown too. On a terminal, each signal has a line: a
curve of its last values, with a gap where samples may be missing, the last value and its
age. Otherwise each signal of a reading is printed on a line of its own. With --json a
reading is one line, with all samples, their times and how exact the times are.

Notifications come from devices and may not be true. They are shortened to one line;
--json prints them in full. If the terminal is too slow, some are skipped and counted.

To have the gateway itself watch a signal, and notify or act, run ` + "`ferrule watch add`" + `.

Past events are not shown. See ` + "`ferrule audit`" + ` for past calls, and ` + "`ferrule history`" + ` for
past measurements.`,
		Example:           "  ferrule watch\n  ferrule watch robot\n  ferrule watch --json --for 1m",
		Args:              atMostOne,
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
			device := strings.Join(args, "")
			if !a.json && isTerminal(a.stderr) {
				fmt.Fprintln(a.stderr, a.style(faint, "Watching "+cmp.Or(device, "all devices")+". Press Ctrl-C to stop."))
			}
			return a.watch(ctx, client, device, datadir.Node(a.dataDir()) != "")
		},
	}
	cmd.Flags().Var((*durationFlag)(&length), "for", "stop after this `duration`")
	for _, c := range watchtext.Commands {
		cmd.AddCommand(a.accessCommand(c))
	}
	return cmd
}

// watch shows events and, for one device, measurements, until ctx ends.
func (a *app) watch(ctx context.Context, client *control.Client, device string, cluster bool) error {
	w := control.Subscription{Device: device, Missed: a.printMissed, Event: func(e ferrule.Event) { a.printEvent(e, cluster) }}
	if device == "" {
		return client.Watch(ctx, w)
	}
	w.Reading = func(r ferrule.Reading) { a.printReading(r, cluster) }
	size := a.terminal()
	if size == nil {
		return client.Watch(ctx, w)
	}
	g := gauges.New(a.stdout, size, func(part gauges.Style, text string) string {
		return a.style(map[gauges.Style]string{gauges.Name: bold, gauges.Curve: green, gauges.Age: faint}[part], text)
	})
	g.Measured(a.latest(ctx, client, device))
	w.Event, w.Reading = func(e ferrule.Event) { g.Above(func() { a.printEvent(e, cluster) }) }, g.Measured
	w.Missed = func(n int) {
		g.Gap()
		g.Above(func() { a.printMissed(n) })
	}
	drawing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { g.Run(drawing) })
	return client.Watch(ctx, w)
}

// latest returns the latest measurements of a device, if they are recorded: the next
// reading may be a minute away.
func (a *app) latest(ctx context.Context, client *control.Client, device string) (r ferrule.Reading) {
	type latestOutput struct {
		Signals []struct {
			Name string `json:"name"`
			Unit string `json:"unit"`
			ferrule.Sample
		} `json:"signals"`
	}
	out, err := control.CallBuiltin[latestOutput](ctx, client, "latest", map[string]string{"device": device})
	if err != nil {
		return r // new readings are shown anyway
	}
	for _, s := range out.Signals {
		r.Batches = append(r.Batches, ferrule.SampleBatch{Signal: s.Name, Unit: s.Unit, Samples: []ferrule.Sample{s.Sample}})
	}
	return r
}

// lasting returns a context that ends after the duration of --for, or never if it is 0.
func lasting(ctx context.Context, length time.Duration) (context.Context, context.CancelFunc, error) {
	switch {
	case length < 0:
		return nil, nil, usageError{fmt.Errorf("--for must be a duration such as 10s, got %v", length)}
	case length == 0:
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	return ctx, cancel, nil
}

func (a *app) printEvent(e ferrule.Event, cluster bool) {
	if a.json {
		a.jsonLines().Encode(e)
		return
	}
	who := deviceName(e.Device, e.Node, cluster)
	fmt.Fprintf(a.stdout, "%s %s %s\n", a.style(faint, e.Time.Local().Format("15:04:05.000")), a.style(bold, who), watchtext.EventText(e))
}

func (a *app) printMissed(n int) {
	if a.json {
		fmt.Fprintf(a.stdout, "{\"missed\":%d}\n", n)
		return
	}
	fmt.Fprintln(a.stdout, a.style(faint, fmt.Sprintf("%d events were skipped: the terminal is too slow", n)))
}

func (a *app) printReading(r ferrule.Reading, cluster bool) {
	if a.json {
		a.jsonLines().Encode(watchtext.ReadingJSON(r))
		return
	}
	fmt.Fprint(a.stdout, watchtext.Reading(r, deviceName(r.Device, r.Node, cluster), a.style))
}
