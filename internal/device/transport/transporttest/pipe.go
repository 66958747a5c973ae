package transporttest

import (
	"io"
	"net"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// Pipe returns a link of lines in memory and its far end. Each write blocks until the
// other end has read it. Both can be used inside a synctest bubble. Empty fields of
// info are filled in.
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
