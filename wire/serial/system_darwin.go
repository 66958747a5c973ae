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

// exclusive is left to the system, which keeps all others out.
func exclusive(*os.File, string) string { return "" }

// holder is not told here.
func holder(string) string { return "" }
