//go:build !unix

package httpclient

import (
	"errors"
	"net"
	"os"
	"time"
)

// quietTime is how long quiet waits.
const quietTime = time.Millisecond

// quiet reports whether an idle connection is still open and nothing has arrived on it.
func quiet(c net.Conn) bool {
	for {
		end := time.Now().Add(quietTime)
		c.SetReadDeadline(end) // fails only on a closed conn, and then Read does
		inTime := time.Now().Before(end)
		_, err := c.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if inTime { // otherwise Read did not look
			return true
		}
	}
}
