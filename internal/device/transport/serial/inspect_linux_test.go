package serial

import (
	"os"
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

// TestDenied: a port without permissions is denied to everybody but root.
func TestDenied(t *testing.T) {
	_, path := openPTY(t)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	want := NoGroup
	if os.Getuid() == 0 {
		want = ""
	}
	if got, group := denied(path); got != want || group != "" {
		t.Errorf("got %q and %q, want %q", got, group, want)
	}
}

func TestWhyDenied(t *testing.T) {
	const dialout = 20
	for name, test := range map[string]struct {
		mode           os.FileMode
		gid            int
		session, login []int
		want           Denied
	}{
		"not a member":               {0o660, dialout, []int{1000}, []int{1000}, NotMember},
		"groups unknown":             {0o660, dialout, nil, nil, NotMember},
		"joined after the login":     {0o660, dialout, []int{1000}, []int{1000, dialout}, NeedsLogin},
		"a member, denied otherwise": {0o660, dialout, []int{1000, dialout}, []int{1000, dialout}, NoGroup},
		"no group may":               {0o600, dialout, []int{1000}, []int{1000}, NoGroup},
		"the group may only write":   {0o620, dialout, []int{1000}, []int{1000}, NoGroup},
		"root's group":               {0o660, 0, []int{1000}, []int{1000}, NoGroup},
	} {
		if got := whyDenied(test.mode, test.gid, test.session, test.login); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
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
