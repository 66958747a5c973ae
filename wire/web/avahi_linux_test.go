package web_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/wire"
	"github.com/ferrulehq/ferrule/wire/web"
)

// What announcements are held to.
const (
	seenWithin = 3 * time.Second
	goneWithin = 2 * time.Second
	avahiTTL   = 2 * time.Minute // of what avahi tells of a host
)

// TestAvahi: devices that a real avahi announces are seen, by each of twenty who
// look; one that comes later is seen soon, and gone soon after its goodbye. What was
// found can be reached.
func TestAvahi(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := newLAN(t, "10.77.0")
	l.ip("link set near down") // the network comes later than the gateway
	w := watch(t)
	time.Sleep(time.Second)
	l.ip("link set near up")
	l.serve()
	l.avahi()
	l.publish("Rig Uno 1", "8765", "path=/one")
	l.publish("Küche v1.0", "8765", "path=/two", "usn=uuid:2")
	const one, two = "mdns:rig%20uno%201@rig.local", "mdns:uuid:2"
	w.until(10*time.Second, one, two)

	for range 20 {
		w := watch(t)
		w.until(seenWithin, one, two)
		w.end()
	}

	began := time.Now()
	later := l.publish("later", "8765")
	w.until(seenWithin, one, two, "mdns:later@rig.local")
	t.Logf("what avahi-publish announces was seen %v after its start", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	later.Process.Signal(syscall.SIGTERM)
	w.until(goneWithin, one, two)
	t.Logf("it was gone %v after its goodbye", time.Since(began).Round(time.Millisecond))

	w.reach(one, "http://10.77.0.2:8765/one")
	w.reach(two, "http://10.77.0.2:8765/two")
}

// TestAvahiIPv6: the same where there are but link-local addresses of IPv6.
func TestAvahiIPv6(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := newLAN(t, "")
	l.serve()
	l.avahi()
	l.publish("six", "8765", "path=/six")
	w := watch(t)
	w.until(10*time.Second, "mdns:six@rig.local")
	w.reach("mdns:six@rig.local", "http://[fe80::2%25near]:8765/six")
}

// TestAvahiPowerCut: a host that loses power says no goodbye. What it announced is
// there until its time has passed, and no longer.
func TestAvahiPowerCut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes as long as an announcement lasts")
	}
	if !inNamespace(t) {
		return
	}
	l := newLAN(t, "10.77.0")
	avahi := l.avahi()
	l.publish("cut", "8765")
	w := watch(t)
	w.until(10*time.Second, "mdns:cut@rig.local")
	avahi.Process.Kill()
	began := time.Now()
	time.Sleep(10 * time.Second)
	w.until(0, "mdns:cut@rig.local")
	w.until(time.Until(began.Add(avahiTTL + time.Second)))
	t.Logf("it was gone %v after the power was cut", time.Since(began).Round(time.Second))
}

// watched is what a connector sees.
type watched struct {
	t   *testing.T
	end func()

	mu  sync.Mutex
	all []wire.Sighting
}

// watch looks for devices until the test ends, or end is called.
func watch(t *testing.T) *watched {
	cfg := web.DefaultConfig()
	cfg.Browse = true
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{t: t}
	done := make(chan error, 1)
	go func() {
		done <- web.New(cfg, nil, slog.New(slog.NewTextHandler(t.Output(), nil))).Watch(ctx, func(_ string, all []wire.Sighting) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = all
		})
	}()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch returned %v, want nil when its context ends", err)
		}
	})
	t.Cleanup(w.end)
	return w
}

// sees are the addresses of what is there.
func (w *watched) sees() map[string]wire.Sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[string]wire.Sighting)
	for _, s := range w.all {
		if s.Adopted || s.Shy == "" || s.Medium != "http" {
			w.t.Errorf("it was merely found: %+v", s)
		}
		seen[s.Address] = s
	}
	return seen
}

// until waits until just these are there.
func (w *watched) until(limit time.Duration, addresses ...string) {
	w.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		seen := w.sees()
		missing := len(seen) != len(addresses)
		for _, a := range addresses {
			if _, ok := seen[a]; !ok {
				missing = true
			}
		}
		if !missing {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("after %v there are %v, want %q", limit, seen, addresses)
		}
	}
}

// reach posts to a device that is there.
func (w *watched) reach(address, want string) {
	w.t.Helper()
	link, err := w.sees()[address].Open(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer link.Close()
	url, carrier := link.(wire.HTTP).HTTP()
	if url != want {
		w.t.Errorf("the URL is %s, want %s", url, want)
	}
	if _, got, err := post(&http.Client{Transport: carrier}, url, "hello"); got != "hello" || err != nil {
		w.t.Errorf("%s answers %q, %v", url, got, err)
	}
}

// lan is two hosts with a cable between them: that of the test, and one that has
// devices. Nobody else sees them.
type lan struct {
	t    *testing.T
	ipv4 bool
}

// newLAN makes both, with addresses of IPv4 if there is a prefix for them.
func newLAN(t *testing.T, prefix string) lan {
	t.Helper()
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // where names of networks are kept
		t.Fatal(err)
	}
	l := lan{t, prefix != ""}
	l.ip("netns add far")
	l.ip("link add near type veth peer name port netns far")
	if l.ipv4 {
		l.ip("address add " + prefix + ".1/24 dev near")
		l.ip("-n far address add " + prefix + ".2/24 dev port")
	}
	l.ip("address add fe80::1/64 dev near nodad")
	l.ip("-n far address add fe80::2/64 dev port nodad")
	for _, link := range []string{"link set lo up", "-n far link set lo up", "-n far link set port addrgenmode none", "-n far link set port up", "link set near addrgenmode none", "link set near up"} {
		l.ip(link)
	}
	return l
}

func (l lan) ip(line string) {
	l.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

// start runs a command on the far host until the test ends, and waits until it says
// something.
func (l lan) start(ready string, command ...string) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", "far"}, command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, in, err := os.Pipe()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	cmd.Env = append(os.Environ(), serveMark+"=1")
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

// avahi starts avahi on the far host, with a bus of its own.
func (l lan) avahi() *exec.Cmd {
	l.t.Helper()
	for file, text := range map[string]string{
		"/run/bus.conf": `<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/></policy></busconfig>`,
		"/run/avahi.conf": fmt.Sprintf("[server]\nhost-name=rig\nuse-ipv4=%s\nuse-ipv6=yes\n[publish]\npublish-workstation=no\n[wide-area]\nenable-wide-area=no\n", map[bool]string{true: "yes", false: "no"}[l.ipv4]),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, dir := range []string{"/run/dbus", "/run/avahi-daemon"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			l.t.Fatal(err)
		}
	}
	l.start("unix:", "dbus-daemon", "--config-file=/run/bus.conf", "--nofork", "--print-address")
	return l.start("Server startup complete", "avahi-daemon", "-f", "/run/avahi.conf", "--no-drop-root", "--no-rlimits", "--no-chroot")
}

// publish announces a device.
func (l lan) publish(name, port string, text ...string) *exec.Cmd {
	l.t.Helper()
	return l.start("", append([]string{"avahi-publish", "-s", name, "_mcp._tcp", port}, text...)...)
}

// serveMark is in the environment of what runs on the far host.
const serveMark = "FERRULE_TEST_SERVE"

// serve starts a server on the far host, which sends back what is posted.
func (l lan) serve() {
	l.t.Helper()
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	l.start("=== RUN", self, "-test.run", "^TestServe$", "-test.v")
}

// TestServe is that server.
func TestServe(t *testing.T) {
	if os.Getenv(serveMark) == "" {
		t.Skip("the other tests run this on another host")
	}
	http.ListenAndServe(":8765", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
}

// namespaceMark is in the environment of a test that was run again in a namespace.
const namespaceMark = "FERRULE_TEST_NAMESPACE"

// inNamespace runs the test again in a process with mounts and a network of its own,
// and tells whether this is that process.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceMark) != "" {
		return true
	}
	says := t.Skipf
	if os.Getenv("CI") != "" {
		says = t.Fatalf
	}
	for _, program := range []string{"ip", "dbus-daemon", "avahi-daemon", "avahi-publish"} {
		if _, err := exec.LookPath(program); err != nil {
			says("announcements need %s: apt-get install iproute2 dbus avahi-daemon avahi-utils", program)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceMark+"=1")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		says("a network of its own needs the right to make a namespace: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error("it failed in the namespace: ", err)
	}
	return false
}
