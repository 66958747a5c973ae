package doctor

import (
	"net"
	"syscall"
)

// peerOf returns the process that listens at the other end of a connection.
func peerOf(conn *net.UnixConn) (pid int) {
	const solLocal, localPeerPID = 0, 2
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if n, err := syscall.GetsockoptInt(int(fd), solLocal, localPeerPID); err == nil {
			pid = n
		}
	})
	return pid
}
