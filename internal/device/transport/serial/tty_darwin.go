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

var errPermission = errors.New("permission denied")

// createdAt distinguishes successive entries of a port with the same number.
func createdAt(_ string, stat *syscall.Stat_t) string { return fmt.Sprint(stat.Birthtimespec) }

// isPTY and isExclusive are not needed: holderOf returns nothing.
func isPTY(string) bool         { return false }
func isExclusive(*os.File) bool { return false }

// holderOf returns nothing: the system locks an exclusive port.
func holderOf(string) Process { return Process{} }

func dropOutput(fd int) { unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, unix.TCOFLUSH) }
