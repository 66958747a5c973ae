//go:build unix

package serial

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"go.bug.st/serial"
	"golang.org/x/sys/unix"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// line is an open port that reads and writes in the runtime's poller. The library
// has only set it up: its own Read waits in a system call, and when garbage is
// collected at the wrong moment, that can stop the whole process for a minute.
type line struct{ *os.File }

func openPort(path string, baud int, reset Reset) (transport.Conn, error) {
	// Two programs at one port get half of the bytes each. It is asked before
	// the port is opened, which raises its lines.
	if !isPTY(path) {
		if owner := holder(path); owner != "" {
			return nil, fmt.Errorf("it is in use by %s", owner)
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, explain(path, err)
	}
	// Whoever made a pseudo terminal may hold it open: it is free unless it was
	// taken.
	if taken(file) {
		if owner := holder(path); owner != "" {
			file.Close()
			return nil, fmt.Errorf("it is in use by %s", owner)
		}
	}
	port, err := serial.Open(path, &serial.Mode{BaudRate: baud})
	if err != nil {
		file.Close()
		return nil, explain(path, err)
	}
	if reset == ResetNone {
		keepLines(file)
	}
	if file.SetReadDeadline(time.Time{}) != nil { // the poller does not take it
		file.Close()
		return newPolled(port)
	}
	port.Close() // what it has set stays
	withFD(file, func(fd int) { unix.IoctlSetInt(fd, unix.TIOCEXCL, 0) })
	return &line{file}, nil
}

// Read implements wire.Conn. A port that was unplugged gives nothing for ever, or
// an input error.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.File.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV) {
		err = errUnplugged
	}
	return n, err
}

// Close implements wire.Conn. What was not yet sent is dropped, because closing
// would wait for it.
func (l *line) Close() error {
	withFD(l.File, func(fd int) {
		unix.IoctlSetInt(fd, unix.TIOCNXCL, 0)
		dropOutput(fd)
	})
	return l.File.Close()
}

// explain says what it means that a port cannot be opened.
func explain(path string, err error) error {
	var code *serial.PortError
	switch {
	case errors.Is(err, syscall.EBUSY), errors.As(err, &code) && code.Code() == serial.PortBusy:
		if owner := holder(path); owner != "" {
			return fmt.Errorf("it is in use by %s", owner)
		}
		return errors.New("it is in use by another program")
	case errors.Is(err, os.ErrPermission), errors.As(err, &code) && code.Code() == serial.PermissionDenied:
		return errForbidden
	case errors.Is(err, os.ErrNotExist):
		return errUnplugged
	}
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err // the path is known
	}
	return err
}

// holder names the process that has a port open; empty if none can be seen.
func holder(path string) string {
	p := holding(path)
	if p.ID == 0 {
		return ""
	}
	return fmt.Sprintf("%s (process %d)", p.Name, p.ID)
}

// keepLines leaves DTR and RTS raised when the port is closed: the next opening
// raises them, and a board that is wired to restart by that does not if they are
// up already.
func keepLines(file *os.File) {
	withFD(file, func(fd int) {
		if t, err := unix.IoctlGetTermios(fd, getTermios); err == nil {
			t.Cflag &^= unix.HUPCL
			unix.IoctlSetTermios(fd, setTermios, t)
		}
	})
}

// withFD calls fn with the descriptor of a file, which stays in the poller.
func withFD(file *os.File, fn func(fd int)) {
	if raw, err := file.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { fn(int(fd)) })
	}
}
