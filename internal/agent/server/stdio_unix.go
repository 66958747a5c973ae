//go:build unix

package server

import (
	"os"
	"syscall"
)

// Standard is standard input and output, read and written so that no thread
// blocks: since Go 1.26 a process can stand still for a minute when a thread
// enters a blocking read just as garbage is about to be collected. What is not a
// pipe or a socket (a terminal, a file) is left as it is: others share it, and
// nobody sends requests at full rate there.
func Standard() (in, out *os.File) {
	return polled(os.Stdin), polled(os.Stdout)
}

// polled has the runtime wait for a file.
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
