package serial

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// occupant names the program that has a port open, if there is one: two at one
// port get half of the bytes each. Some programs take a port for themselves, and
// then the system keeps all others out but the superuser; avrdude does not. A
// pseudo terminal is often held open by whoever made it, and is free unless it
// was taken.
func occupant(file *os.File, path string) string {
	if strings.HasPrefix(path, "/dev/pts/") && !taken(file) {
		return ""
	}
	return holder(path)
}

// taken tells whether somebody took a port for themselves.
func taken(file *os.File) (so bool) {
	withFD(file, func(fd int) {
		exclusive, err := unix.IoctlGetInt(fd, unix.TIOCGEXCL)
		so = err == nil && exclusive != 0
	})
	return so
}

// holder names the process, other than this one, that has a port open; empty if
// there is none that this user can see.
func holder(path string) string {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		pid := filepath.Base(process)
		if pid == strconv.Itoa(os.Getpid()) || !has(process, path) {
			continue
		}
		name, err := os.ReadFile(process + "/comm")
		if err != nil {
			continue // it has just ended
		}
		return fmt.Sprintf("%s (process %s)", clean(string(name)), pid)
	}
	return ""
}

// has tells whether a process has a file open.
func has(process, path string) bool {
	files, _ := filepath.Glob(process + "/fd/*")
	return slices.ContainsFunc(files, func(file string) bool {
		to, err := os.Readlink(file)
		return err == nil && to == path
	})
}
