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

// pollerConn is an open port that reads and writes in the runtime's poller. The
// library only sets it up: its Read blocks in a system call, and a garbage collection
// at the wrong moment can then stop the whole process for a minute.
type pollerConn struct{ *os.File }

func openPort(path string, baud int, reset Reset) (transport.Conn, error) {
	// Two programs on one port get half of the bytes each. Check before opening,
	// which raises the DTR and RTS lines.
	if !isPTY(path) {
		if owner := describeHolder(path); owner != "" {
			return nil, fmt.Errorf("in use by %s", owner)
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, openError(path, err)
	}
	// The creator of a pseudo terminal may keep it open, so it is in use only if it
	// is exclusive.
	if isExclusive(file) {
		if owner := describeHolder(path); owner != "" {
			file.Close()
			return nil, fmt.Errorf("in use by %s", owner)
		}
	}
	port, err := serial.Open(path, &serial.Mode{BaudRate: baud})
	if err != nil {
		file.Close()
		return nil, openError(path, err)
	}
	if reset == ResetNone {
		keepLines(file)
	}
	if file.SetReadDeadline(time.Time{}) != nil { // the poller does not support it
		file.Close()
		return newPollingConn(port)
	}
	port.Close() // its settings stay
	withFD(file, func(fd int) { unix.IoctlSetInt(fd, unix.TIOCEXCL, 0) })
	return &pollerConn{file}, nil
}

// Read implements transport.Conn. An unplugged port returns EOF or an I/O error.
func (l *pollerConn) Read(p []byte) (int, error) {
	n, err := l.File.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV) {
		err = errUnplugged
	}
	return n, err
}

// Close implements transport.Conn. It drops unsent output, because closing would wait
// for it.
func (l *pollerConn) Close() error {
	withFD(l.File, func(fd int) {
		unix.IoctlSetInt(fd, unix.TIOCNXCL, 0)
		dropOutput(fd)
	})
	return l.File.Close()
}

// openError maps an error of opening a port to a message for the user.
func openError(path string, err error) error {
	var code *serial.PortError
	switch {
	case errors.Is(err, syscall.EBUSY), errors.As(err, &code) && code.Code() == serial.PortBusy:
		if owner := describeHolder(path); owner != "" {
			return fmt.Errorf("in use by %s", owner)
		}
		return errors.New("in use by another program")
	case errors.Is(err, os.ErrPermission), errors.As(err, &code) && code.Code() == serial.PermissionDenied:
		return errPermission
	case errors.Is(err, os.ErrNotExist):
		return errUnplugged
	}
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err // the caller adds the path
	}
	return err
}

// describeHolder names the process that has a port open; empty if none is visible.
func describeHolder(path string) string {
	p := holderOf(path)
	if p.ID == 0 {
		return ""
	}
	return fmt.Sprintf("%s (process %d)", p.Name, p.ID)
}

// keepLines leaves DTR and RTS raised when the port is closed. Many boards restart
// when an open raises them, but not if they are raised already.
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
