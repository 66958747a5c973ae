package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// The exit codes. A script can tell by them whether the hardware moved.
const (
	exitOther      = 1 // anything that is not below
	exitUsage      = 2 // the command line or the file is wrong
	exitNotRun     = 3 // the gateway refused: it did not run
	exitNotReached = 4 // the device is offline or busy: it did not run
	exitRefused    = 5 // the device refused: it did not run
	exitMaybe      = 6 // it may have run
	exitNoGateway  = 7 // no gateway is running
)

// usageError is a wrong command line, or a wrong file.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

// exitCodes is the one table from codes to exit codes, for errors that tell
// that nothing ran. A code of a newer gateway is not in it.
var exitCodes = map[ferrule.Code]int{
	ferrule.NotFound: exitNotRun, ferrule.Denied: exitNotRun, ferrule.Invalid: exitNotRun,
	ferrule.Limited: exitNotRun, ferrule.Pending: exitNotRun, ferrule.Cancelled: exitNotRun,
	ferrule.Offline: exitNotReached, ferrule.Busy: exitNotReached,
	ferrule.Refused: exitRefused,
}

// fail tells the user of an error and returns the exit code.
func (a *app) fail(err error) int {
	var usage usageError
	var e *ferrule.Error
	switch {
	case errors.Is(err, control.ErrNoGateway):
		a.tell(&ferrule.Error{
			Code: ferrule.Offline, Message: "no gateway is running for " + a.dataDir(),
			Hint: "`ferrule up` starts one; --data says which is meant",
		})
		return exitNoGateway
	case errors.As(err, &e):
		a.tell(e)
		if e.MayHaveRun() {
			return exitMaybe
		}
		return cmp.Or(exitCodes[e.Code], exitOther)
	case errors.As(err, &usage):
		a.tell(&ferrule.Error{Code: ferrule.Invalid, Message: err.Error(), Hint: "--help tells more"})
		return exitUsage
	}
	a.tell(&ferrule.Error{Code: ferrule.Internal, Message: err.Error()})
	return exitOther
}

// tell writes an error: what happened, what it means for the hardware if a
// device was meant, what to do next.
func (a *app) tell(e *ferrule.Error) {
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
