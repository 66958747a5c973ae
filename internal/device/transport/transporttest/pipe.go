package transporttest

import (
	"io"
	"net"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// Pipe returns a link of lines in memory and its far end. Each write blocks
// until the other end has read it, and both can be used inside a synctest
// bubble. What info leaves empty is filled in.
func Pipe(info transport.Info) (transport.Link, io.ReadWriteCloser) {
	if info.Transport == "" {
		info.Transport = "pipe"
	}
	if info.Address == "" {
		info.Address = "memory"
	}
	near, far := net.Pipe()
	return transport.NewStream(near, info, transport.DefaultLimits()), far
}
