package serial

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)

var errForbidden = errors.New("permission denied")

// born tells one entry of a port from the next with the same number.
func born(_ string, stat *syscall.Stat_t) string { return fmt.Sprint(stat.Birthtimespec) }

// isPTY and taken do not matter where holding tells nothing.
func isPTY(string) bool   { return false }
func taken(*os.File) bool { return false }

// holding is not told here: the system keeps others out of a port that is taken.
func holding(string) Process { return Process{} }

func dropOutput(fd int) { unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, unix.TCOFLUSH) }
