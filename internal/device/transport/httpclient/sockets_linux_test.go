package httpclient

import (
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestApart: on a machine with several networks, what comes is read once, and not by each
// of the sockets.
func TestApart(t *testing.T) {
	const mark = "FERRULE_TEST_APART"
	if os.Getenv(mark) == "" {
		says := t.Skipf
		if os.Getenv("CI") != "" {
			says = t.Fatalf
		}
		if _, err := exec.LookPath("ip"); err != nil {
			says("networks of its own need ip: apt-get install iproute2")
		}
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestApart$", "-test.v")
		cmd.Env = append(os.Environ(), mark+"=1")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		if err := cmd.Start(); err != nil {
			says("networks of its own need the right to make a namespace: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error("it failed in the namespace: ", err)
		}
		return
	}
	for _, line := range []string{
		"link add left type veth peer name left-end", "link add right type veth peer name right-end",
		"link set left addrgenmode none", "link set right addrgenmode none", "link set left-end addrgenmode none", "link set right-end addrgenmode none",
		"address add 10.1.0.1/24 dev left", "address add 10.2.0.1/24 dev right",
		"address add fe80::1/64 dev left nodad", "address add fe80::2/64 dev right nodad",
		"link set left-end up", "link set right-end up", "link set left up", "link set right up",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	var heard atomic.Int64
	s := newSockets(func([]byte, string) { heard.Add(1) })
	defer s.close()
	if _, err := s.refresh(); err != nil || len(s.open) != 4 {
		t.Fatalf("%d sockets, %v", len(s.open), err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		heard.Store(0)
		s.send([]byte("hello")) // it is heard on this machine, too
		time.Sleep(200 * time.Millisecond)
		switch n := heard.Load(); {
		case n == int64(len(s.open)):
			return
		case n > int64(len(s.open)) || time.Now().After(end): // a network takes a moment to come up
			t.Fatalf("%d messages were sent, and %d heard", len(s.open), n)
		}
	}
}
