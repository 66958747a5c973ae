package serial

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"go.bug.st/serial"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// pollingConn is a transport.Conn on the library's port, for systems without a poller
// for ports. Reads return often to check the deadline, and a write that blocks past
// its deadline is abandoned.
type pollingConn struct {
	port serial.Port

	mu       sync.Mutex
	deadline [2]time.Time // of reading, of writing
}

// pollInterval is how long one read waits.
const pollInterval = 50 * time.Millisecond

func newPollingConn(port serial.Port) (transport.Conn, error) {
	if err := port.SetReadTimeout(pollInterval); err != nil {
		port.Close()
		return nil, err
	}
	return &pollingConn{port: port}, nil
}

func (c *pollingConn) SetReadDeadline(t time.Time) error  { return c.set(0, t) }
func (c *pollingConn) SetWriteDeadline(t time.Time) error { return c.set(1, t) }

func (c *pollingConn) set(way int, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline[way] = t
	return nil
}

// left returns the time until a deadline; negative if it has passed.
func (c *pollingConn) left(way int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline[way].IsZero() {
		return time.Hour
	}
	return time.Until(c.deadline[way])
}

func (c *pollingConn) Read(p []byte) (int, error) {
	for {
		if c.left(0) <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		n, err := c.port.Read(p)
		if n > 0 || err != nil {
			if code, ok := err.(*serial.PortError); ok && code.Code() == serial.PortClosed {
				err = errUnplugged
			}
			return n, err
		}
	}
}

// Write implements transport.Conn. After a failed or abandoned write it is unknown how
// much was sent. It returns at least 1, so that the link is closed.
func (c *pollingConn) Write(p []byte) (int, error) {
	type written struct {
		n   int
		err error
	}
	done := make(chan written, 1)
	data := bytes.Clone(p) // the write may outlive this call
	go func() {
		n, err := c.port.Write(data)
		done <- written{n, err}
	}()
	timeout := time.NewTimer(c.left(1))
	defer timeout.Stop()
	select {
	case w := <-done:
		if w.err == nil && w.n < len(p) {
			w.err = io.ErrShortWrite
		}
		if w.err != nil {
			w.n = max(w.n, 1)
		}
		return w.n, w.err
	case <-timeout.C:
		return 1, os.ErrDeadlineExceeded
	}
}

func (c *pollingConn) Close() error { return c.port.Close() }
