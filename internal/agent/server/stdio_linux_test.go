package server

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// kept are files whose descriptor another file has closed. If they were collected, they
// would close the next file with that number.
var kept []*os.File

// TestPolled: pipes and sockets are polled by the runtime (Node starts its servers with
// sockets). Files that others may share stay as they are.
func TestPolled(t *testing.T) {
	pipe := make([]int, 2)
	if err := syscall.Pipe(pipe); err != nil {
		t.Fatal(err)
	}
	socket, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.Create(filepath.Join(t.TempDir(), "text"))
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file, far *os.File
		polled    bool
	}{
		"pipe":   {os.NewFile(uintptr(pipe[0]), "pipe"), os.NewFile(uintptr(pipe[1]), "far"), true},
		"socket": {os.NewFile(uintptr(socket[0]), "socket"), os.NewFile(uintptr(socket[1]), "far"), true},
		"file":   {text, nil, false},
		"device": {null, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.file.Close()
			defer c.far.Close()
			if nonblocking(t, c.file) {
				t.Fatal("the file does not block at first")
			}
			f := polled(c.file)
			kept = append(kept, f)
			if got := nonblocking(t, f); got != c.polled {
				t.Errorf("nonblocking: %v, want %v", got, c.polled)
			}
			// Only polled files can have a deadline.
			err := f.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if !c.polled {
				if !errors.Is(err, os.ErrNoDeadline) || f != c.file {
					t.Errorf("got %v: %v", f, err)
				}
				return
			}
			if _, readErr := f.Read(make([]byte, 1)); err != nil || !errors.Is(readErr, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, %v", err, readErr)
			}
			if nonblocking(t, c.far) {
				t.Error("the other end was changed, too")
			}
		})
	}
}

func nonblocking(t *testing.T, f *os.File) bool {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags uintptr
	conn.Control(func(fd uintptr) { flags, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0) })
	return flags&syscall.O_NONBLOCK != 0
}
