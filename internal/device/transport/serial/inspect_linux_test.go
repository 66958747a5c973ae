package serial

import (
	"syscall"
	"testing"
)

// TestInspectHolder: the holder of a port is found without opening it.
func TestInspectHolder(t *testing.T) {
	_, path := openPTY(t)
	find := func() PortStatus {
		t.Helper()
		all, err := Inspect(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Path == path {
				return s
			}
		}
		t.Fatalf("%s is not among %+v", path, all)
		return PortStatus{}
	}
	if got := find(); got != (PortStatus{Path: path}) {
		t.Errorf("without a holder: got %+v", got)
	}
	pid, release := hold(t, path)
	opened := watchOpen(t, path)
	if got, want := find(), (PortStatus{Path: path, Holder: Process{pid, "serial.test"}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if opened() {
		t.Error("the port was opened")
	}
	release()
	if got := find(); got.Holder != (Process{}) {
		t.Errorf("after the holder ended: got %+v", got)
	}
}

// watchOpen returns a function that reports whether a file was opened since.
func watchOpen(t *testing.T, path string) (opened func() bool) {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if _, err := syscall.InotifyAddWatch(fd, path, syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		n, _ := syscall.Read(fd, make([]byte, 4096))
		return n > 0
	}
}
