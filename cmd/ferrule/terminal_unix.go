//go:build unix

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// terminalSize is how wide and high a terminal is; it is not ok where that is not known,
// or lines cannot be drawn anew.
func terminalSize(f *os.File) (width, height int, ok bool) {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	return int(size.columns), int(size.rows), errno == 0 && size.columns > 0 && size.rows > 0
}
