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

// polled makes a wire.Conn of the library's port, where the system has no poller
// for ports: reads end every now and then to look at the clock, and a write that
// does not end is left behind.
type polled struct {
	port serial.Port

	mu       sync.Mutex
	deadline [2]time.Time // of reading, of writing
}

// glance is how long one read waits.
const glance = 50 * time.Millisecond

func newPolled(port serial.Port) (transport.Conn, error) {
	if err := port.SetReadTimeout(glance); err != nil {
		port.Close()
		return nil, err
	}
	return &polled{port: port}, nil
}

func (c *polled) SetReadDeadline(t time.Time) error  { return c.set(0, t) }
func (c *polled) SetWriteDeadline(t time.Time) error { return c.set(1, t) }

func (c *polled) set(way int, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline[way] = t
	return nil
}

// left is how long there is until a deadline; negative once it has passed.
func (c *polled) left(way int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline[way].IsZero() {
		return time.Hour
	}
	return time.Until(c.deadline[way])
}

func (c *polled) Read(p []byte) (int, error) {
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

// Write implements wire.Conn. How much left of a write that did not end, or that
// failed, is not known: at least one byte may have, and so the link is given up.
func (c *polled) Write(p []byte) (int, error) {
	type written struct {
		n   int
		err error
	}
	done := make(chan written, 1)
	data := bytes.Clone(p) // it may be written after this has returned
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

func (c *polled) Close() error { return c.port.Close() }
