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

var errPermission = errors.New("permission denied: add yourself to the group that owns it, usually dialout (`sudo usermod -aG dialout $USER`), and log in again")

// isPTY reports whether a path is a pseudo terminal.
func isPTY(path string) bool { return strings.HasPrefix(path, "/dev/pts/") }

// createdAt distinguishes successive pseudo terminals with the same number.
// Other ports do not need it, and their ctime changes with their permissions.
func createdAt(real string, stat *syscall.Stat_t) string {
	if isPTY(real) {
		return fmt.Sprint(stat.Ctim)
	}
	return ""
}

// isExclusive reports whether a program opened the port exclusively. The system then
// refuses everybody but root.
func isExclusive(file *os.File) (exclusive bool) {
	withFD(file, func(fd int) {
		flag, err := unix.IoctlGetInt(fd, unix.TIOCGEXCL)
		exclusive = err == nil && flag != 0
	})
	return exclusive
}

func dropOutput(fd int) { unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCOFLUSH) }

// holderOf returns another process that has a port open, if one is visible to this
// user. The creator of a pseudo terminal does not count: it may keep both ends open,
// and the exclusive mark of a killed program stays on it.
func holderOf(path string) Process {
	port, err := os.Stat(path)
	if err != nil {
		return Process{}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil || pid == os.Getpid() || !hasOpen(process, port) || hasMaster(process, path) {
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

// hasOpen reports whether a process has a file open.
func hasOpen(process string, port os.FileInfo) bool {
	files, _ := filepath.Glob(process + "/fd/*")
	return slices.ContainsFunc(files, func(file string) bool {
		to, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(to, "/dev/") {
			return false // stat may block elsewhere, for example on a network file system
		}
		info, err := os.Stat(file)
		return err == nil && os.SameFile(info, port)
	})
}

// hasMaster reports whether a process has the master of a pseudo terminal open.
func hasMaster(process, path string) bool {
	if !isPTY(path) {
		return false
	}
	infos, _ := filepath.Glob(process + "/fdinfo/*")
	return slices.ContainsFunc(infos, func(info string) bool {
		data, err := os.ReadFile(info)
		return err == nil && strings.Contains(string(data), "tty-index:\t"+filepath.Base(path)+"\n")
	})
}
