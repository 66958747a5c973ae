package httpclient_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/lan"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// The limits that discovery must keep.
const (
	seenWithin = 3 * time.Second
	goneWithin = 2 * time.Second
)

var watchers = flag.Int("watchers", 5, "how many watchers TestAvahi starts, one after another")

// TestAvahi: devices that a real avahi announces are seen by each of several watchers.
// A device that appears later is seen, and gone after its goodbye. Discovered devices
// can be reached.
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
	w.until(one, two)

	var longest time.Duration
	for range *watchers {
		w := watch(t)
		longest = max(longest, w.until(one, two))
		w.end()
	}
	figure.AtMost(t, "a watcher sees devices", longest, seenWithin)

	later := l.Publish("later", "8765")
	figure.AtMost(t, "avahi-publish: seen after its start", w.until(one, two, "mdns:later@rig.local"), seenWithin)
	later.Process.Signal(syscall.SIGTERM)
	figure.AtMost(t, "gone after its goodbye", w.until(one, two), goneWithin)

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
	w.until("mdns:six@rig.local")
	w.reach("mdns:six@rig.local", "http://[fd77::2]:8765/six")
}

// TestAvahiPowerCut: a host that loses power says no goodbye. Its services stay until
// their TTL has passed. That they stay no longer is shown by the cache in virtual time.
func TestAvahiPowerCut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	if !inNamespace(t) {
		return
	}
	l := lan.New(t, "10.77.0")
	avahi := l.Avahi()
	const ttl, cut = 20 * time.Second, "mdns:cut@cut.local"
	l.PublishFor(ttl, "cut", "cut", netip.MustParseAddrPort("10.77.0.2:8765"), "/mcp")
	asked := time.Now()
	w := watch(t)
	w.until(cut)
	avahi.Process.Kill()
	took := w.until()
	if stayed := time.Since(asked); stayed < ttl/2 {
		t.Errorf("gone after %v", stayed)
	}
	figure.AtMost(t, "gone after the power cut", took, ttl+time.Second)
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

// until waits until exactly these addresses are sighted, and returns how long that took.
func (w *watched) until(addresses ...string) time.Duration {
	w.t.Helper()
	began := time.Now()
	slices.Sort(addresses)
	defer func() {
		if w.t.Failed() {
			w.t.Logf("sighted: %v", w.sightings())
		}
	}()
	wait.For(w.t, fmt.Sprintf("exactly %q are sighted", addresses), func() bool {
		return slices.Equal(slices.Sorted(maps.Keys(w.sightings())), addresses)
	})
	return time.Since(began)
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
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v", "-watchers", fmt.Sprint(*watchers))
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
