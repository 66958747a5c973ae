package terminal

import (
	"os"
	"syscall"
)

// echoInput is ENABLE_ECHO_INPUT: the console shows what is typed.
const echoInput = 4

// hide turns off the echo of a console, until restore is called. Other files stay as they are.
func hide(f *os.File) (restore func()) {
	handle := syscall.Handle(f.Fd())
	var mode uint32
	if err := syscall.GetConsoleMode(handle, &mode); err != nil {
		return func() {}
	}
	setConsoleMode.Call(uintptr(handle), uintptr(mode&^echoInput))
	return func() { setConsoleMode.Call(uintptr(handle), uintptr(mode)) }
}

// discard drops what was typed on a console and not read yet.
func discard(f *os.File) {
	flushInput.Call(f.Fd())
}
