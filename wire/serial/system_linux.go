package serial

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
)

// changed is when the entry of a port was made, or given to somebody.
func changed(stat *syscall.Stat_t) syscall.Timespec { return stat.Ctim }

// exclusive tells who has taken a port for themselves, if somebody else has. The
// system keeps others out by itself, but not the superuser.
func exclusive(file *os.File, path string) (owner string) {
	withFD(file, func(fd int) {
		if taken, err := unix.IoctlGetInt(fd, unix.TIOCGEXCL); err == nil && taken != 0 {
			owner = holder(path)
		}
	})
	return owner
}

// holder names the process, other than this one, that has a port open; empty if
// there is none that this user can see.
func holder(path string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if to, err := os.Readlink(file); err != nil || to != path {
			continue
		}
		pid := strings.Split(file, "/")[2]
		if pid == fmt.Sprint(os.Getpid()) {
			continue
		}
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			continue // it has just ended
		}
		return fmt.Sprintf("%s (process %s)", clean(string(name)), pid)
	}
	return ""
}
