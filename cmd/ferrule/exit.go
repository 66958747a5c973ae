package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
)

// The exit codes. They tell a script whether the hardware moved.
const (
	exitOther      = 1 // any other error
	exitUsage      = 2 // wrong command line or configuration
	exitNotRun     = 3 // refused by the gateway: did not run
	exitNotReached = 4 // device offline or busy: did not run
	exitRefused    = 5 // refused by the device: did not run
	exitMaybe      = 6 // may have run
	exitNoGateway  = 7 // no gateway is running, or it cannot be reached
	exitNotAllowed = 8 // this user may not use the gateway
)

// usageError is an error in the command line or the configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

// exitStatus is the exit code of a program that was run. Everything is printed.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitCodes maps the codes of calls that did not run to exit codes. A newer gateway may
// send codes that are not in it.
var exitCodes = map[ferrule.Code]int{
	ferrule.NotFound: exitNotRun, ferrule.Denied: exitNotRun, ferrule.Invalid: exitNotRun,
	ferrule.Limited: exitNotRun, ferrule.Pending: exitNotRun, ferrule.Cancelled: exitNotRun,
	ferrule.Offline: exitNotReached, ferrule.Busy: exitNotReached,
	ferrule.Refused: exitRefused,
}

// fail prints the error of a command and returns the exit code.
func (a *app) fail(command string, err error) int {
	var usage usageError
	var typed arguments.UsageError
	var status exitStatus
	var e *ferrule.Error
	switch {
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, control.ErrNoGateway):
		a.printError(&ferrule.Error{
			Code: ferrule.Offline, Message: "no gateway is running for " + a.dataDir(),
			Hint: "Start one with `ferrule up`, or name another data directory with --data.",
		})
		return exitNoGateway
	case errors.As(err, &e):
		a.printError(e)
		switch {
		case errors.Is(err, control.ErrNotAllowed):
			return exitNotAllowed
		case errors.Is(err, control.ErrUnreachable):
			return exitNoGateway
		case e.MayHaveRun():
			return exitMaybe
		}
		return cmp.Or(exitCodes[e.Code], exitOther)
	case errors.As(err, &usage), errors.As(err, &typed):
		a.printError(&ferrule.Error{Code: ferrule.Invalid, Message: err.Error(), Hint: "Run `" + command + " --help` for details."})
		return exitUsage
	}
	a.printError(&ferrule.Error{Code: ferrule.Internal, Message: err.Error()})
	return exitOther
}

// printError prints an error: what happened, what it means for the hardware, what to do
// next.
func (a *app) printError(e *ferrule.Error) {
	shown := *e
	e = &shown
	e.Message, e.Hint = ferrule.MaskURLs(e.Message), ferrule.MaskURLs(e.Hint)
	if a.json {
		json.NewEncoder(a.stderr).Encode(map[string]any{"error": e})
		return
	}
	fmt.Fprintf(a.stderr, "%s %s\n", a.style(bold, "ferrule:"), e.Message)
	if e.MayHaveRun() || e.Code == ferrule.Refused {
		fmt.Fprintf(a.stderr, "  %s\n", e.Certainty())
	}
	if e.Hint != "" {
		fmt.Fprintf(a.stderr, "  %s\n", e.Hint)
	}
}
