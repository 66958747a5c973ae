package httpclient_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/testenv/lan"
)

// The limits that discovery must keep.
const (
	seenWithin = 3 * time.Second
	goneWithin = 2 * time.Second
	avahiTTL   = 2 * time.Minute // of the host records that avahi sends
)

// TestAvahi: devices that a real avahi announces are seen by each of twenty watchers.
// A device that appears later is seen soon, and gone soon after its goodbye.
// Discovered devices can be reached.
func TestAvahi(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := lan.New(t, "10.77.0")
	l.IP("link set near down") // the network comes up after the gateway
	w := watch(t)
	time.Sleep(time.Second)
	l.IP("link set near up")
	serve(t, l)
	l.Avahi()
	l.Publish("Rig Uno 1", "8765", "path=/one")
	l.Publish("Küche v1.0", "8765", "path=/two", "usn=uuid:2")
	const one, two = "mdns:rig%20uno%201@rig.local", "mdns:uuid:2"
	w.until(10*time.Second, one, two)

	for range 20 {
		w := watch(t)
		w.until(seenWithin, one, two)
		w.end()
	}

	began := time.Now()
	later := l.Publish("later", "8765")
	w.until(seenWithin, one, two, "mdns:later@rig.local")
	t.Logf("avahi-publish: seen %v after its start", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	later.Process.Signal(syscall.SIGTERM)
	w.until(goneWithin, one, two)
	t.Logf("gone %v after its goodbye", time.Since(began).Round(time.Millisecond))

	w.reach(one, "http://10.77.0.2:8765/one")
	w.reach(two, "http://10.77.0.2:8765/two")
}

// TestAvahiIPv6: discovery works on a network without IPv4. Link-local addresses are not
// used: anybody can announce them, and with them what only this machine can reach.
func TestAvahiIPv6(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := lan.New(t, "")
	l.IP("address add fd77::1/64 dev near nodad")
	l.IP("-n far address add fd77::2/64 dev port nodad")
	serve(t, l)
	l.Avahi()
	l.Publish("six", "8765", "path=/six")
	w := watch(t)
	w.until(10*time.Second, "mdns:six@rig.local")
	w.reach("mdns:six@rig.local", "http://[fd77::2]:8765/six")
}

// TestAvahiPowerCut: a host that loses power says no goodbye. Its services stay until
// their TTL has passed, and no longer.
func TestAvahiPowerCut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes as long as the TTL of an announcement")
	}
	if !inNamespace(t) {
		return
	}
	l := lan.New(t, "10.77.0")
	avahi := l.Avahi()
	l.Publish("cut", "8765")
	w := watch(t)
	w.until(10*time.Second, "mdns:cut@rig.local")
	avahi.Process.Kill()
	began := time.Now()
	time.Sleep(10 * time.Second)
	w.until(0, "mdns:cut@rig.local")
	w.until(time.Until(began.Add(avahiTTL + time.Second)))
	t.Logf("gone %v after the power cut", time.Since(began).Round(time.Second))
}

// watched holds the latest sightings of a connector.
type watched struct {
	t   *testing.T
	end func()

	mu  sync.Mutex
	all []transport.Sighting
}

// watch discovers devices until the test ends or end is called.
func watch(t *testing.T) *watched {
	cfg := httpclient.DefaultConfig()
	cfg.Browse = true
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{t: t}
	done := make(chan error, 1)
	go func() {
		done <- httpclient.New(cfg, nil, slog.New(slog.NewTextHandler(t.Output(), nil))).Watch(ctx, func(_ string, all []transport.Sighting) {
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

// sightings returns the sightings by address.
func (w *watched) sightings() map[string]transport.Sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[string]transport.Sighting)
	for _, s := range w.all {
		if s.Adopted || s.AdoptFirst == "" || s.Transport != "http" {
			w.t.Errorf("a discovered device is trusted: %+v", s)
		}
		seen[s.Address] = s
	}
	return seen
}

// until waits until exactly these addresses are sighted.
func (w *watched) until(limit time.Duration, addresses ...string) {
	w.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		seen := w.sightings()
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
			w.t.Fatalf("after %v: got %v, want %q", limit, seen, addresses)
		}
	}
}

// reach posts to a sighted device.
func (w *watched) reach(address, want string) {
	w.t.Helper()
	link, err := w.sightings()[address].Open(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer link.Close()
	url, tripper := link.(transport.HTTP).HTTP()
	if url != want {
		w.t.Errorf("the URL is %s, want %s", url, want)
	}
	if _, got, err := post(&http.Client{Transport: tripper}, url, "hello"); got != "hello" || err != nil {
		w.t.Errorf("%s answers %q, %v", url, got, err)
	}
}

// serveMark is set in the environment of the process on the far host.
const serveMark = "FERRULE_TEST_SERVE"

// serve starts an echo server on the far host.
func serve(t *testing.T, l *lan.LAN) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l.Start("=== RUN", "env", serveMark+"=1", self, "-test.run", "^TestServe$", "-test.v")
}

// TestServe is the echo server.
func TestServe(t *testing.T) {
	if os.Getenv(serveMark) == "" {
		t.Skip("other tests run this on the far host")
	}
	http.ListenAndServe(":8765", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
}

// namespaceMark is set in the environment of a test that runs in a namespace.
const namespaceMark = "FERRULE_TEST_NAMESPACE"

// inNamespace runs the test again in a process with its own mount and network
// namespaces, and reports whether this is that process.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceMark) != "" {
		return true
	}
	lan.Need(t)
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
		skip := t.Skipf
		if os.Getenv("CI") != "" {
			skip = t.Fatalf
		}
		skip("cannot create a network namespace: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error("the test failed in the namespace: ", err)
	}
	return false
}
