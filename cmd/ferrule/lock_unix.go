//go:build unix

package main

import (
	"os"
	"syscall"
)

// errLocked is what locking a file that is locked gives.
const errLocked = syscall.EWOULDBLOCK

// openLocked opens a file that nobody else has open this way.
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
