//go:build linux

// Package lan is a local network for tests: the host of the test, a far host, and a
// cable between them, with a real avahi on the far host.
//
//	test -- near --cable-- port -- far: avahi, and the commands of the test
//
// The network is isolated, so a test must run in a process with its own mount and
// network namespaces.
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

// LAN is two hosts connected by a cable.
type LAN struct {
	t    testing.TB
	ipv4 bool
}

// Need skips the test if a program is missing. In CI it fails the test.
func Need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"ip", "dbus-daemon", "avahi-daemon", "avahi-publish"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		skip := t.Skipf
		if os.Getenv("CI") != "" {
			skip = t.Fatalf
		}
		skip("mDNS tests need %s: apt-get install iproute2 dbus avahi-daemon avahi-utils", program)
	}
}

// New creates both hosts. With an IPv4 prefix such as 10.77.0, the near host is .1 and
// the far host .2. Their IPv6 addresses are fe80::1 and fe80::2.
func New(t testing.TB, prefix string) *LAN {
	t.Helper()
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // the ip command keeps namespaces there
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

// In returns the same network for a subtest, which ends the commands that it starts.
func (l *LAN) In(t testing.TB) *LAN { return &LAN{t, l.ipv4} }

// IP runs the command ip.
func (l *LAN) IP(line string) {
	l.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

// Cut simulates a power cut on the far host: it sends nothing anymore, not even a
// goodbye.
func (l *LAN) Cut() { l.t.Helper(); l.IP("-n far link set port down") }

// Start runs a command on the far host until the test ends. It waits until a line of
// output contains ready, unless that is empty.
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
	seen := make(chan bool, 1)
	var log strings.Builder
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if fmt.Fprintln(&log, lines.Text()); strings.Contains(lines.Text(), ready) {
				seen <- true
				io.Copy(io.Discard, out)
				return
			}
		}
		seen <- false
	}()
	l.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		out.Close()
	})
	if ready != "" && !<-seen {
		l.t.Fatalf("%q did not print %q: %s", command, ready, log.String())
	}
	return cmd
}
