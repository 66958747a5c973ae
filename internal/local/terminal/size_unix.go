//go:build unix

package terminal

import (
	"os"
	"syscall"
	"unsafe"
)

// Size returns the size of a terminal. It is not ok if the size is unknown or lines
// cannot be redrawn.
func Size(f *os.File) (width, height int, ok bool) {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	return int(size.columns), int(size.rows), errno == 0 && size.columns > 0 && size.rows > 0
}
