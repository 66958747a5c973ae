// Package flashing runs a program while the port of a device is free, for example one that
// flashes new firmware.
//
//	release -> run the program, and extend the release meanwhile
//	        -> reconnect -> wait until the device is online -> what changed
//
// The port is taken back however the program ends, also after Ctrl-C.
package flashing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/pinning"
)

// Gateway is what the gateway does for it.
type Gateway interface {
	Describe(ctx context.Context, device string) (builtin.DescribeDeviceOutput, error)
	// Release releases the port of a device for a while; for 0, it reconnects now.
	Release(ctx context.Context, device string, length time.Duration) (builtin.ReleaseDeviceOutput, error)
	// Retry connects a device now.
	Retry(ctx context.Context, device string) error
	// Changes returns how a device differs from a Kind that it had before.
	Changes(ctx context.Context, device string, since ferrule.Kind) (pinning.Report, error)
}

// Job is a program to run while the port of a device is free.
type Job struct {
	Device  string
	Command []string
	// For is how long the port is released. The release is extended while the program runs.
	For     time.Duration
	Gateway Gateway
	// Stdin, Stdout and Stderr are those of the program.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Say prints a line for the person.
	Say func(text string)
}

// Outcome is what became of a Job whose device came back.
type Outcome struct {
	Device string `json:"device"`
	// Exit is the exit code of the program, or 128 and the number of the signal that ended
	// it.
	Exit    int    `json:"exit"`
	State   string `json:"state"`
	Version string `json:"version,omitempty"`
	Before  string `json:"version_before,omitempty"`
	// Changes is missing if the device was never online before.
	Changes *pinning.Report `json:"changes,omitempty"`
}

// The times of a Job.
const (
	minExtend = 100 * time.Millisecond
	// takeBackTime limits the request to reconnect, after Ctrl-C too.
	takeBackTime = 10 * time.Second
	// returnTime is how long a device may take to come back: some restart twice.
	returnTime = 30 * time.Second
	retryEvery = 500 * time.Millisecond
	// interruptTime is how long a program may take to end after Ctrl-C, which it got too,
	// before it is told to; killTime is how long before it is killed.
	interruptTime = 3 * time.Second
	killTime      = 10 * time.Second
)

// Run runs the program. The error is about the gateway or the start of the program, not
// about how the program ended. Canceling ctx ends the program, not what follows it.
func (j Job) Run(ctx context.Context) (Outcome, error) {
	out := Outcome{Device: j.Device}
	path, err := exec.LookPath(j.Command[0])
	if err != nil {
		return out, fmt.Errorf("the port was not released: %w", err)
	}
	before, err := j.Gateway.Describe(ctx, j.Device)
	if err != nil {
		return out, err
	}
	released, err := j.Gateway.Release(ctx, j.Device, j.For)
	if err != nil {
		return out, err
	}
	j.Say(fmt.Sprintf("%s is released while %s runs.", released.Device, ferrule.OneLine(ferrule.Clean(j.Command[0], ferrule.MaxText), 80)))
	out.Exit, err = j.run(ctx, path)
	ctx = context.WithoutCancel(ctx) // Ctrl-C ended the program
	if failed := j.takeBack(ctx); failed != nil {
		e := ferrule.Errorf(ferrule.Offline, "%s is still released: %w", j.Device, failed)
		return out, errors.Join(err, e.WithHint("It reconnects by itself within %v. To reconnect now, run `ferrule release %s --for 0s`.", j.For, j.Device))
	}
	if err != nil {
		return out, err
	}
	err = j.compare(ctx, before.Device, &out)
	return out, err
}

// takeBack ends the release. A gateway that has just been restarted may not answer yet, or
// not see the device.
func (j Job) takeBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takeBackTime)
	defer cancel()
	for {
		_, err := j.Gateway.Release(ctx, j.Device, 0)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryEvery):
		}
	}
}

// run runs the program and extends the release meanwhile.
func (j Job) run(ctx context.Context, path string) (exit int, err error) {
	cmd := exec.Command(path, j.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = j.Stdin, j.Stdout, j.Stderr
	cmd.WaitDelay = time.Second // a process that it left behind may hold the output
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("the program was not started: %w", err)
	}
	stop, extended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(extended)
		j.extend(context.WithoutCancel(ctx), stop)
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = j.wait(ctx, cmd, ended)
	close(stop)
	<-extended // no extension may come after the end of the release
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) || errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return exitCode(cmd), err
}

// wait waits for the program. When ctx ends, it ends the program.
func (j Job) wait(ctx context.Context, cmd *exec.Cmd, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(interruptTime):
	}
	if cmd.Process.Signal(syscall.SIGTERM) == nil { // not on Windows
		select {
		case err := <-ended:
			return err
		case <-time.After(killTime):
		}
	}
	cmd.Process.Kill()
	return <-ended
}

// exitCode returns the code of a program that has ended, as a shell does.
func exitCode(cmd *exec.Cmd) int {
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// extend extends the release until stop is closed. A gateway that restarts remembers the
// release, and is asked again. A request is not canceled: it could run after the end of
// the release.
func (j Job) extend(ctx context.Context, stop <-chan struct{}) {
	told := false
	for {
		select {
		case <-stop:
			return
		case <-time.After(max(j.For/3, minExtend)):
		}
		request, cancel := context.WithTimeout(ctx, takeBackTime)
		_, err := j.Gateway.Release(request, j.Device, j.For)
		cancel()
		if err != nil && !told {
			j.Say(fmt.Sprintf("The release of %s was not extended, and is tried again: %v", j.Device, err))
		}
		told = err != nil
	}
}

// compare waits until the device is online, and compares it with what it was.
func (j Job) compare(ctx context.Context, before builtin.DescribedDevice, out *Outcome) error {
	ctx, cancel := context.WithTimeout(ctx, returnTime)
	defer cancel()
	err := j.Gateway.Retry(ctx, j.Device)
	for err != nil {
		select {
		case <-ctx.Done():
			e := ferrule.Errorf(ferrule.Offline, "%s did not come back within %v: %w", j.Device, returnTime, err)
			return e.WithHint("Check the cable, press reset on the board, then run `ferrule doctor`.")
		case <-time.After(retryEvery):
		}
		err = j.Gateway.Retry(ctx, j.Device)
	}
	now, err := j.Gateway.Describe(ctx, j.Device)
	if err != nil {
		return err
	}
	out.State, out.Version, out.Before = now.Device.State, now.Device.Version, before.Version
	if before.Kind == "" {
		return nil
	}
	report, err := j.Gateway.Changes(ctx, j.Device, ferrule.Kind(before.Kind))
	if err == nil {
		out.Changes = &report
	}
	return err
}

// Text says what became of the device.
func (o Outcome) Text(style func(op, text string) string) string {
	text := fmt.Sprintf("%s is %s.", o.Device, o.State)
	if o.Version != o.Before && o.Before != "" {
		text += fmt.Sprintf(" Its version is %s, before %s.", clean(o.Version), clean(o.Before))
	}
	text += "\n"
	if o.Changes != nil {
		text += o.Changes.Print(style)
	}
	return text
}

func clean(text string) string { return ferrule.OneLine(ferrule.Clean(text, ferrule.MaxWord), 80) }
