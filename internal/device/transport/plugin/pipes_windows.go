package plugin

import (
	"io"
	"net"
)

// makePipes returns our ends of the pipes, and those of the process. They are in memory, and
// package exec copies what they carry: a pipe of Windows has no deadlines.
func makePipes() (ours pipes, in io.Reader, out io.Writer, release func(), err error) {
	ourIn, childIn := net.Pipe()
	ourOut, childOut := net.Pipe()
	return pipes{in: ourIn, out: ourOut}, childIn, childOut, func() {}, nil
}
