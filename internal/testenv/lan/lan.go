//go:build linux

// Package lan is a local network for tests: the host of the test, one that is far, and
// a cable between them, with a real avahi that announces what is on the far one.
//
//	test ── near ──cable── port ── far: avahi, and what the test starts there
//
// Nobody else sees it, so a test that wants one is run in a process with mounts and a
// network of its own.
package lan

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// LAN is two hosts with a cable between them.
type LAN struct {
	t    testing.TB
	ipv4 bool
}

// Need skips the test where something is missing, and fails in CI.
func Need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"ip", "dbus-daemon", "avahi-daemon", "avahi-publish"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		says := t.Skipf
		if os.Getenv("CI") != "" {
			says = t.Fatalf
		}
		says("announcements need %s: apt-get install iproute2 dbus avahi-daemon avahi-utils", program)
	}
}

// New makes both hosts, with addresses of IPv4 if there is a prefix for them, such as
// 10.77.0: the near one has .1, the far one .2. Of IPv6 they are fe80::1 and fe80::2.
func New(t testing.TB, prefix string) *LAN {
	t.Helper()
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // where names of networks are kept
		t.Fatal(err)
	}
	l := &LAN{t, prefix != ""}
	l.IP("netns add far")
	l.IP("link add near type veth peer name port netns far")
	if l.ipv4 {
		l.IP("address add " + prefix + ".1/24 dev near")
		l.IP("-n far address add " + prefix + ".2/24 dev port")
	}
	l.IP("address add fe80::1/64 dev near nodad")
	l.IP("-n far address add fe80::2/64 dev port nodad")
	for _, link := range []string{"link set lo up", "-n far link set lo up", "-n far link set port addrgenmode none", "-n far link set port up", "link set near addrgenmode none", "link set near up"} {
		l.IP(link)
	}
	return l
}

// In is the same network for a part of the test, with which ends what is started by it.
func (l *LAN) In(t testing.TB) *LAN { return &LAN{t, l.ipv4} }

// IP runs the command ip.
func (l *LAN) IP(line string) {
	l.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

// Cut is what a power cut on the far host looks like from here: from now on nothing
// comes from it, and least of all a goodbye.
func (l *LAN) Cut() { l.t.Helper(); l.IP("-n far link set port down") }

// Start runs a command on the far host until the test ends, and waits until it says
// something, if it is to.
func (l *LAN) Start(ready string, command ...string) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", "far"}, command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, in, err := os.Pipe()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	in.Close()
	said := make(chan bool, 1)
	var log strings.Builder
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if fmt.Fprintln(&log, lines.Text()); strings.Contains(lines.Text(), ready) {
				said <- true
				io.Copy(io.Discard, out)
				return
			}
		}
		said <- false
	}()
	l.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		out.Close()
	})
	if ready != "" && !<-said {
		l.t.Fatalf("%q does not say %q: %s", command, ready, log.String())
	}
	return cmd
}
