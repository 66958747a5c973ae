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
)

func (a *app) watchCommand() *cobra.Command {
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "watch [DEVICE]",
		Short: "Show what happens to devices, live",
		Long: `Show what happens to a device, or to all, as it happens, until interrupted: that
it can be reached, or no longer and why, that it says something else of itself
than before, that it waits to be adopted, that tools of it cannot be used, and
what it says by itself. If the gateway is one of several nodes, the devices of
all of them are shown.

Of one device, it is shown what it measures as well. On a terminal, each signal
has a line: its last values, from the lowest of them to the highest, with a gap
where some may be missing, then the last value, and how old it is. Elsewhere,
each reading is a line for each of its signals. With --json it is one, which has
all samples with their times and how sure these are.

What a device says is up to the device: it need not be true. It is shown on one
line and cut; --json has all of it. A terminal that is too slow misses some,
and is told how many.

What has happened before is not shown; ferrule audit tells who called what.`,
		Example:           "  ferrule watch\n  ferrule watch robot\n  ferrule watch --json --for 1m",
		Args:              orNone,
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
				fmt.Fprintln(a.stderr, a.style(faint, "watching "+cmp.Or(device, "all devices")+"; Ctrl-C ends it"))
			}
			return a.watch(ctx, client, device, nodeName(a.dataDir()) != "")
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "a `duration` to show it")
	return cmd
}

// watch shows what happens, and what a device measures, until ctx ends.
func (a *app) watch(ctx context.Context, client *control.Client, device string, several bool) error {
	w := control.Subscription{Device: device, Missed: a.printMissed, Event: func(e ferrule.Event) { a.printEvent(e, several) }}
	if device == "" {
		return client.Watch(ctx, w)
	}
	w.Reading = func(r ferrule.Reading) { a.printReading(r, several) }
	size := a.terminal()
	if size == nil {
		return client.Watch(ctx, w)
	}
	g := newGauges(a, size)
	g.known(ctx, client, device)
	w.Event, w.Reading, w.Missed = func(e ferrule.Event) { g.happened(e, several) }, g.measured, g.missed
	drawing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { g.run(drawing) })
	return client.Watch(ctx, w)
}

// lasting is a context for as long as --for says; without end if that is 0.
func lasting(ctx context.Context, length time.Duration) (context.Context, context.CancelFunc, error) {
	switch {
	case length < 0:
		return nil, nil, usageError{fmt.Errorf("--for: want a duration such as 10s, got %v", length)}
	case length == 0:
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	return ctx, cancel, nil
}

// printEvent prints an event, with its node if there are several.
func (a *app) printEvent(e ferrule.Event, several bool) {
	if a.json {
		a.jsonLines().Encode(e)
		return
	}
	who := ofNode(e.Device, e.Node, several)
	fmt.Fprintf(a.stdout, "%s %s %s\n", a.style(faint, e.Time.Local().Format("15:04:05.000")), a.style(bold, who), happening(e))
}

// printMissed prints how many events were lost.
func (a *app) printMissed(n int) {
	if a.json {
		fmt.Fprintf(a.stdout, "{\"missed\":%d}\n", n)
		return
	}
	fmt.Fprintln(a.stdout, a.style(faint, fmt.Sprintf("%d more came too fast to be shown", n)))
}

// happening tells an event in the words that follow the name of its device.
func happening(e ferrule.Event) string {
	said := "something happened that this version does not know: " + string(e.Type)
	switch e.Type {
	case ferrule.Appeared:
		said = "can be reached"
	case ferrule.Gone:
		said = "cannot be reached: " + e.Reason
	case ferrule.ChangedKind:
		said = fmt.Sprintf("says something else of itself: it is of Kind %s, and was of %s", e.Kind.Short(), e.Previous.Short())
	case ferrule.PendingFound:
		said = "waits to be adopted: " + e.Reason
	case ferrule.Quarantined:
		said = "has tools that cannot be used: " + strings.Join(e.Tools, ", ")
	case ferrule.Notified:
		said = strings.TrimSpace(fmt.Sprintf("says %s %s", e.Method, e.Params))
	}
	return oneLine(ferrule.Clean(said, ferrule.MaxText), maxShown)
}

// maxShown is how many characters of an event are shown.
const maxShown = 300
