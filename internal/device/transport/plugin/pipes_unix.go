//go:build unix

package plugin

import (
	"io"
	"os"
)

// makePipes returns our ends of the pipes, and those of the process, which release closes
// after it was started.
func makePipes() (ours pipes, in io.Reader, out io.Writer, release func(), err error) {
	childIn, ourIn, err := os.Pipe()
	if err != nil {
		return ours, nil, nil, nil, err
	}
	ourOut, childOut, err := os.Pipe()
	if err != nil {
		childIn.Close()
		ourIn.Close()
		return ours, nil, nil, nil, err
	}
	return pipes{in: ourIn, out: ourOut}, childIn, childOut, func() {
		childIn.Close()
		childOut.Close()
	}, nil
}
