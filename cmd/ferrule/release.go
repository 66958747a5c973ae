package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/pinning"
	"github.com/ferrulehq/ferrule/internal/ops/flashing"
)

func (a *app) releaseCommand() *cobra.Command {
	length := 2 * time.Minute
	cmd := &cobra.Command{
		Use:   "release DEVICE [-- COMMAND...]",
		Short: "Release a device's port, for example to flash it",
		Long: `Release a device's port, so that another program can use it, for example to flash new
firmware. The gateway closes the port and reconnects by itself when the time is up. Then
it reads the tools of the device again. Until then calls fail and say why. A gateway that
is restarted meanwhile does not take the port either.

With a command, the port is free while the command runs, however long that takes, and the
gateway reconnects when it ends, also after Ctrl-C. Then what changed about the device is
shown: tools that were added, removed or changed. The exit code is that of the command. If
the command succeeded and the device does not come back, it is 4.`,
		Example: `  ferrule release robot
  ferrule release robot --for 10m
  ferrule release robot --for 0s   # reconnect now
  ferrule release robot -- arduino-cli upload -b arduino:avr:uno -p /dev/ttyACM0 sketch`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash >= 0 && (dash != 1 || len(args) < 2) || dash < 0 && len(args) != 1 {
				return usageError{fmt.Errorf("usage: %s", cmd.UseLine())}
			}
			return nil
		},
		ValidArgsFunction: a.completeDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case length < 0 || length > ferrule.MaxRelease:
				return usageError{fmt.Errorf("--for must be from 0s to %v, got %v", ferrule.MaxRelease, length)}
			case len(args) > 1 && length < time.Second:
				return usageError{errors.New("--for must be at least 1s with a command; it is extended while the command runs")}
			case len(args) > 1:
				return a.flash(cmd.Context(), args[0], length, args[1:])
			}
			out, err := flashGateway{a}.Release(cmd.Context(), args[0], length)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(out)
			case length == 0:
				fmt.Fprintf(a.stdout, "%s is no longer released.\n", out.Device)
			default:
				fmt.Fprintf(a.stdout, "%s is released until %s.\n", out.Device, ferrule.FormatTime(out.Until))
			}
			return nil
		},
	}
	cmd.Flags().Var((*durationFlag)(&length), "for", "release for this `duration`; 0s reconnects now")
	return cmd
}

// flash runs a command while the port of a device is free.
func (a *app) flash(ctx context.Context, device string, length time.Duration, command []string) error {
	job := flashing.Job{Device: device, Command: command, For: length, Gateway: flashGateway{a}, Stdin: os.Stdin, Stdout: a.stdout, Stderr: a.stderr}
	job.Say = func(text string) { fmt.Fprintln(a.stderr, a.style(faint, text)) }
	if a.json {
		job.Stdout = a.stderr
	}
	out, err := job.Run(ctx)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return usageError{err}
	case err != nil && out.Exit != 0:
		a.fail("", err)
		return exitStatus(out.Exit)
	case err != nil:
		return err
	case a.json:
		err = a.printJSON(out)
	default:
		fmt.Fprint(a.stdout, out.Text(a.diffStyle))
	}
	if out.Exit != 0 {
		return exitStatus(out.Exit)
	}
	return err
}

// flashGateway implements flashing.Gateway.
type flashGateway struct{ *app }

func (g flashGateway) Describe(ctx context.Context, device string) (builtin.DescribeDeviceOutput, error) {
	return g.describe(ctx, device)
}

func (g flashGateway) Release(ctx context.Context, device string, length time.Duration) (builtin.ReleaseDeviceOutput, error) {
	return callGateway[builtin.ReleaseDeviceOutput](ctx, g.app, "release_device", builtin.ReleaseDeviceInput{Device: device, For: ferrule.Duration(length)})
}

func (g flashGateway) Retry(ctx context.Context, device string) error {
	_, err := callGateway[builtin.RetryDeviceOutput](ctx, g.app, "retry_device", builtin.RetryDeviceInput{Device: device})
	return err
}

func (g flashGateway) Changes(ctx context.Context, device string, since ferrule.Kind) (pinning.Report, error) {
	return callGateway[pinning.Report](ctx, g.app, "device_changes", builtin.DeviceChangesInput{Device: device, Since: since})
}
