package terminal

import (
	"os"
	"syscall"
	"unsafe"
)

var (
	kernel32       = syscall.NewLazyDLL("kernel32.dll")
	setConsoleMode = kernel32.NewProc("SetConsoleMode")
	flushInput     = kernel32.NewProc("FlushConsoleInputBuffer")
	consoleInfo    = kernel32.NewProc("GetConsoleScreenBufferInfo")
)

// virtualTerminal is ENABLE_VIRTUAL_TERMINAL_PROCESSING: the console understands escape
// sequences.
const virtualTerminal = 4

// Size returns the size of a console. It is not ok if the size is unknown or lines
// cannot be redrawn.
func Size(f *os.File) (width, height int, ok bool) {
	handle := syscall.Handle(f.Fd())
	var mode uint32
	if err := syscall.GetConsoleMode(handle, &mode); err != nil {
		return 0, 0, false
	}
	if done, _, _ := setConsoleMode.Call(uintptr(handle), uintptr(mode|virtualTerminal)); done == 0 {
		return 0, 0, false
	}
	var info struct {
		columns, rows, x, y      int16
		attributes               uint16
		left, top, right, bottom int16
		widest, highest          int16
	}
	if done, _, _ := consoleInfo.Call(uintptr(handle), uintptr(unsafe.Pointer(&info))); done == 0 {
		return 0, 0, false
	}
	return int(info.right-info.left) + 1, int(info.bottom-info.top) + 1, true
}
