//go:build unix

package terminal

import (
	"os"
	"syscall"
	"unsafe"
)

// hide turns off the echo of a terminal, until restore is called. Other files stay as they are.
func hide(f *os.File) (restore func()) {
	var before syscall.Termios
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), getTermios, uintptr(unsafe.Pointer(&before))); errno != 0 {
		return func() {}
	}
	set := func(t syscall.Termios) {
		syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), setTermios, uintptr(unsafe.Pointer(&t)))
	}
	hidden := before
	hidden.Lflag = hidden.Lflag&^syscall.ECHO | syscall.ECHONL
	set(hidden)
	return func() { set(before) }
}

// discard drops what was typed on a terminal and not read yet.
func discard(f *os.File) {
	var now syscall.Termios
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), getTermios, uintptr(unsafe.Pointer(&now))); errno == 0 {
		syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), flushTermios, uintptr(unsafe.Pointer(&now)))
	}
}
