package serial

import (
	"errors"
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

var errForbidden = errors.New("permission denied: add yourself to the group that owns it, mostly dialout (`sudo usermod -aG dialout $USER`), and log in again")

// isPTY tells a pseudo terminal from a port.
func isPTY(path string) bool { return strings.HasPrefix(path, "/dev/pts/") }

// born tells one entry of a port from the next with the same number. Only those
// of pseudo terminals need that; for others it would change with their rights.
func born(real string, stat *syscall.Stat_t) string {
	if isPTY(real) {
		return fmt.Sprint(stat.Ctim)
	}
	return ""
}

// taken tells whether somebody took a port for themselves. The system then keeps
// all others out but the superuser.
func taken(file *os.File) (so bool) {
	withFD(file, func(fd int) {
		exclusive, err := unix.IoctlGetInt(fd, unix.TIOCGEXCL)
		so = err == nil && exclusive != 0
	})
	return so
}

func dropOutput(fd int) { unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCOFLUSH) }

// holding finds the process, other than this one, that has a port open, if there
// is one that this user can see. Whoever made a pseudo terminal does not count: it
// may well hold both ends, and the mark of a program that was killed stays on it.
func holding(path string) Process {
	port, err := os.Stat(path)
	if err != nil {
		return Process{}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil || pid == os.Getpid() || !has(process, port) || made(process, path) {
			continue
		}
		name, err := os.ReadFile(process + "/comm")
		if err != nil {
			continue // it has just ended
		}
		return Process{pid, clean(string(name))}
	}
	return Process{}
}

// has tells whether a process has a file open.
func has(process string, port os.FileInfo) bool {
	files, _ := filepath.Glob(process + "/fd/*")
	return slices.ContainsFunc(files, func(file string) bool {
		to, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(to, "/dev/") {
			return false // to look at what is elsewhere may take for ever
		}
		info, err := os.Stat(file)
		return err == nil && os.SameFile(info, port)
	})
}

// made tells whether a process has the other end of a pseudo terminal.
func made(process, path string) bool {
	if !isPTY(path) {
		return false
	}
	infos, _ := filepath.Glob(process + "/fdinfo/*")
	return slices.ContainsFunc(infos, func(info string) bool {
		data, err := os.ReadFile(info)
		return err == nil && strings.Contains(string(data), "tty-index:\t"+filepath.Base(path)+"\n")
	})
}
