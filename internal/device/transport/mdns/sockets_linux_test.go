package mdns

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestBindTo: on a machine with several networks, a packet is read once and not by
// every socket. The test runs itself again in a network namespace.
func TestBindTo(t *testing.T) {
	const mark = "FERRULE_TEST_BIND"
	if os.Getenv(mark) == "" {
		skip := t.Skipf
		if os.Getenv("CI") != "" {
			skip = t.Fatalf
		}
		if _, err := exec.LookPath("ip"); err != nil {
			skip("needs the ip command: apt-get install iproute2")
		}
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestBindTo$", "-test.v")
		cmd.Env = append(os.Environ(), mark+"=1")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		if err := cmd.Start(); err != nil {
			skip("cannot create a network namespace: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error("the test failed in the namespace: ", err)
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
	var mu sync.Mutex
	received := make(map[string]int)
	s := newSockets(func(text []byte) {
		mu.Lock()
		defer mu.Unlock()
		received[string(text)]++
	})
	defer s.close()
	if _, err := s.refresh(); err != nil || len(s.open) != 4 {
		t.Fatalf("%d sockets, %v", len(s.open), err)
	}
	round := 0
	wait.For(t, "all messages arrive", func() bool { // a network needs a moment to come up
		round++
		text := fmt.Sprint("hello ", round)
		s.send([]byte(text)) // this machine receives it, too
		time.Sleep(200 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if received[text] > len(s.open) {
			t.Fatalf("%d messages sent, %d received", len(s.open), received[text])
		}
		return received[text] == len(s.open)
	})
}
