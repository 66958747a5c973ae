//go:build unix

package datadir

import (
	"os"
	"syscall"
)

// errLocked is returned when a file is locked by another process.
const errLocked = syscall.EWOULDBLOCK

// openLocked opens a file and locks it. The lock ends with the process, even if the
// process is killed.
func openLocked(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return file, nil
}
