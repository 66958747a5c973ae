//go:build unix

package httpclient

import (
	"net"
	"syscall"
)

// quiet reports whether an idle connection is still open and nothing has arrived on it. It
// does not wait.
func quiet(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
		nothing = err == syscall.EAGAIN
		return true
	})
	return err == nil && nothing
}
