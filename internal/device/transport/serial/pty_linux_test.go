package serial

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openPTY returns the master of a new pseudo terminal and the path of its port.
func openPTY(t *testing.T) (master *os.File, path string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	withFD(master, func(fd int) {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
		if err == nil {
			var n int
			n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
			path = fmt.Sprintf("/dev/pts/%d", n)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return master, path
}
