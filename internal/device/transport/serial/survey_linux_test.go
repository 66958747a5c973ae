package serial

import (
	"os"
	"syscall"
	"testing"
)

// TestSurveyOfHeld: who has a port is told without opening it.
func TestSurveyOfHeld(t *testing.T) {
	_, path := openPTY(t)
	find := func() Surveyed {
		t.Helper()
		all, err := Survey(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Path == path {
				return s
			}
		}
		t.Fatalf("%s is not among %+v", path, all)
		return Surveyed{}
	}
	if got := find(); got != (Surveyed{Path: path}) {
		t.Errorf("nobody has it: got %+v", got)
	}
	pid, letGo := hold(t, path)
	opened := watchOpen(t, path)
	if got, want := find(), (Surveyed{Path: path, Holder: Process{pid, "serial.test"}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if opened() {
		t.Error("the port was opened")
	}
	letGo()
	if got := find(); got.Holder != (Process{}) {
		t.Errorf("after it ended: got %+v", got)
	}
}

// TestSurveyOfDenied: a port that may not be opened; to the superuser there is
// none.
func TestSurveyOfDenied(t *testing.T) {
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
		"a stranger":             {0o660, dialout, []int{1000}, []int{1000}, NotMember},
		"no groups are told":     {0o660, dialout, nil, nil, NotMember},
		"joined after the login": {0o660, dialout, []int{1000}, []int{1000, dialout}, NotYet},
		"a member all the same":  {0o660, dialout, []int{1000, dialout}, []int{1000, dialout}, NoGroup},
		"nobody's group":         {0o600, dialout, []int{1000}, []int{1000}, NoGroup},
		"a group that writes":    {0o620, dialout, []int{1000}, []int{1000}, NoGroup},
		"root's group":           {0o660, 0, []int{1000}, []int{1000}, NoGroup},
	} {
		if got := whyDenied(test.mode, test.gid, test.session, test.login); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// watchOpen tells whether somebody has opened a file since, be it for a moment.
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
