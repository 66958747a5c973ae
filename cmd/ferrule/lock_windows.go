package main

import (
	"os"
	"syscall"
)

// errLocked is what opening a file that is shared with no one gives:
// ERROR_SHARING_VIOLATION.
const errLocked = syscall.Errno(32)

// openLocked opens a file that nobody else has open: it is shared with no one.
func openLocked(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	handle, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(handle), path), nil
}
