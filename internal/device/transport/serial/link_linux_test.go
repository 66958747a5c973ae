package serial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.bug.st/serial"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
)

// sight returns the only sighting of a connector.
func sight(t *testing.T, c *Connector) transport.Sighting {
	t.Helper()
	ports := c.scan()
	if len(ports) != 1 {
		t.Fatalf("got ports %v", ports)
	}
	return c.sightings(ports)[0]
}

// TestLink runs the suite on pseudo terminals.
func TestLink(t *testing.T) {
	transporttest.RunLines(t, func(t *testing.T) (transport.Link, io.ReadWriteCloser) {
		master, path := openPTY(t)
		cfg := DefaultConfig()
		cfg.Ports = []Port{{Path: path, Baud: 9600}}
		link, err := sight(t, New(cfg)).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { link.Close() })
		if info := link.Info(); info.BitRate != 9600 || !info.Restarts {
			t.Errorf("got %+v", info)
		}
		return link, master
	})
}

// TestPollingConn runs the suite on the fallback for systems without a poller.
func TestPollingConn(t *testing.T) {
	transporttest.RunLines(t, func(t *testing.T) (transport.Link, io.ReadWriteCloser) {
		master, path := openPTY(t)
		port, err := serial.Open(path, &serial.Mode{BaudRate: 115200})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := newPollingConn(port)
		if err != nil {
			t.Fatal(err)
		}
		link := transport.NewStream(conn, transport.Info{Transport: Name, Address: "here", BitRate: 115200}, transport.DefaultLimits())
		t.Cleanup(func() { link.Close() })
		return link, master
	})
}

// TestUnplugged: an unplugged port returns another error than a closed link.
func TestUnplugged(t *testing.T) {
	master, path := openPTY(t)
	conn, err := openPort(path, DefaultBaud, ResetNone)
	if err != nil {
		t.Fatal(err)
	}
	link := transport.NewStream(conn, transport.Info{}, transport.DefaultLimits())
	defer link.Close()
	time.AfterFunc(10*time.Millisecond, func() { master.Close() })
	if _, err := link.Recv(t.Context()); !errors.Is(err, errUnplugged) {
		t.Errorf("got %v", err)
	}
	if _, err := openPort(path, DefaultBaud, ResetOpen); !errors.Is(err, errUnplugged) {
		t.Errorf("opening it again: %v", err)
	}
}

// TestAnotherBoard: a port is not opened if another board is on it by then.
func TestAnotherBoard(t *testing.T) {
	_, path := openPTY(t)
	one, other := arduino, arduino
	one.Path, other.Path = path, path
	other.Serial = "75735303731351F0A1C2"
	for name, change := range map[string]func(m *machine){
		"the same":              nil,
		"gone":                  func(m *machine) { m.unplug(path) },
		"another":               func(m *machine) { m.unplug(path); m.plug(other) },
		"another, same file ID": func(m *machine) { m.ports[0] = other },
		"the same, again":       func(m *machine) { m.unplug(path); m.plug(one) },
	} {
		m := &machine{}
		m.plug(one)
		c := New(Config{Ports: []Port{{Path: Auto}}, Limits: transport.DefaultLimits()})
		c.system = m
		s := sight(t, c)
		if change != nil {
			change(m)
		}
		link, err := s.Open(t.Context())
		if (err == nil) != (change == nil) || err != nil && !errors.Is(err, errUnplugged) {
			t.Errorf("%s: %v", name, err)
		}
		if link != nil {
			link.Close()
		}
	}
}

// TestBusy: the error for a port in use names the other program.
func TestBusy(t *testing.T) {
	_, path := openPTY(t)
	_, release := hold(t, path)
	if _, err := openPort(path, DefaultBaud, ResetOpen); err == nil || !strings.Contains(err.Error(), "in use by serial.test (process ") {
		t.Errorf("got %v", err)
	}
	release()
	conn, err := openPort(path, DefaultBaud, ResetOpen)
	if err != nil {
		t.Fatalf("after it ended: %v", err)
	}
	conn.Close()
}

// hold starts another process that opens a port exclusively, as a terminal program
// does.
func hold(t *testing.T, path string) (pid int, release func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestHold$")
	cmd.Env = append(os.Environ(), "HOLD_PORT="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		in.Close()
		cmd.Wait()
	})
	t.Cleanup(release)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, release
}

// TestHold is that process.
func TestHold(t *testing.T) {
	path := os.Getenv("HOLD_PORT")
	if path == "" {
		return
	}
	port, err := serial.Open(path, &serial.Mode{BaudRate: 9600})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	os.Stdout.WriteString("held\n")
	io.Copy(io.Discard, os.Stdin)
}

// TestReadsInPoller: a blocked read does not occupy a thread.
func TestReadsInPoller(t *testing.T) {
	const ports = 40
	before := threads(t)
	for range ports {
		_, path := openPTY(t)
		conn, err := openPort(path, DefaultBaud, ResetOpen)
		if err != nil {
			t.Fatal(err)
		}
		link := transport.NewStream(conn, transport.Info{}, transport.DefaultLimits())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			link.Recv(context.Background())
		}()
		t.Cleanup(func() {
			link.Close()
			<-ended
		})
	}
	time.Sleep(50 * time.Millisecond)
	if now := threads(t); now > before+ports/4 {
		t.Errorf("reading %d ports takes %d threads", ports, now-before)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestPermissions: changing the permissions or times of a port, as udev does, does not
// change its file ID.
func TestPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ttyX")
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|3); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be allowed to create a device: %v", err)
		}
		t.Skipf("cannot create a device: %v", err)
	}
	_, before, err := native{}.stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, 0o666), os.Chtimes(path, time.Now(), time.Now())); err != nil {
		t.Fatal(err)
	}
	if _, after, err := (native{}).stat(path); err != nil || after != before {
		t.Errorf("%q became %q, %v", before, after, err)
	}
}

// TestRestarts: with ResetNone, a board restarts only on the first open after it was
// plugged in.
func TestRestarts(t *testing.T) {
	for reset, want := range map[Reset]string{ResetOpen: "[true true]", ResetNone: "[true false]"} {
		_, path := openPTY(t)
		cfg := DefaultConfig()
		cfg.Ports = []Port{{Path: path, Reset: reset}}
		s := sight(t, New(cfg))
		var got []bool
		for range 2 {
			link, err := s.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, link.Info().Restarts)
			link.Close()
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%q: %v, want %s", reset, got, want)
		}
	}
}
