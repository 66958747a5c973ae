package serial

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)

// changed is when the entry of a port was made, or given to somebody.
func changed(stat *syscall.Stat_t) syscall.Timespec { return stat.Ctimespec }

// occupant is not told here: the system keeps others out.
func occupant(*os.File, string) string { return "" }

// holder is not told here.
func holder(string) string { return "" }
