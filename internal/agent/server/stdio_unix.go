//go:build unix

package server

import (
	"os"
	"syscall"
)

// Standard returns standard input and output in non-blocking mode. With Go 1.26 a
// process can stall for a minute if a thread enters a blocking read just when garbage
// collection begins. Only pipes and sockets are changed: a terminal or a file is shared
// with other processes, and does not carry requests at full rate.
func Standard() (in, out *os.File) {
	return polled(os.Stdin), polled(os.Stdout)
}

// polled returns a file that the runtime polls.
func polled(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return f
	}
	fd := f.Fd()
	if err := syscall.SetNonblock(int(fd), true); err != nil {
		return f
	}
	return os.NewFile(fd, f.Name())
}
