package serial

import (
	"errors"
	"time"
)

var errUnplugged = errors.New("it was unplugged")

// noDeadline lifts a deadline.
var noDeadline time.Time
