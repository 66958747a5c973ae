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
	ports := c.look()
	if len(ports) != 1 {
		t.Fatalf("there are %v", ports)
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

// TestPolledLink runs it on what stands in where the system has no poller.
func TestPolledLink(t *testing.T) {
	transporttest.RunLines(t, func(t *testing.T) (transport.Link, io.ReadWriteCloser) {
		master, path := openPTY(t)
		port, err := serial.Open(path, &serial.Mode{BaudRate: 115200})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := newPolled(port)
		if err != nil {
			t.Fatal(err)
		}
		link := transport.NewStream(conn, transport.Info{Transport: Name, Address: "here", BitRate: 115200}, transport.DefaultLimits())
		t.Cleanup(func() { link.Close() })
		return link, master
	})
}

// TestUnplugged: that a port is gone is told from our own closing of it.
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

// TestAnotherBoard: a port that has become free may have been given to another
// board by the time it is opened.
func TestAnotherBoard(t *testing.T) {
	_, path := openPTY(t)
	one, other := arduino, arduino
	one.Path, other.Path = path, path
	other.Serial = "75735303731351F0A1C2"
	for name, change := range map[string]func(m *machine){
		"the same":          nil,
		"gone":              func(m *machine) { m.unplug(path) },
		"another":           func(m *machine) { m.unplug(path); m.plug(other) },
		"another, unmarked": func(m *machine) { m.ports[0] = other },
		"the same, again":   func(m *machine) { m.unplug(path); m.plug(one) },
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

// TestBusy: a port that another program has is named with that program.
func TestBusy(t *testing.T) {
	_, path := openPTY(t)
	_, letGo := hold(t, path)
	if _, err := openPort(path, DefaultBaud, ResetOpen); err == nil || !strings.Contains(err.Error(), "in use by serial.test (process ") {
		t.Errorf("got %v", err)
	}
	letGo()
	conn, err := openPort(path, DefaultBaud, ResetOpen)
	if err != nil {
		t.Fatalf("after it ended: %v", err)
	}
	conn.Close()
}

// hold has another process hold a port open, and take it for itself as a terminal
// program does.
func hold(t *testing.T, path string) (pid int, letGo func()) {
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
	letGo = sync.OnceFunc(func() {
		in.Close()
		cmd.Wait()
	})
	t.Cleanup(letGo)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, letGo
}

// TestHold is the other program.
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

// TestReadsInThePoller: no thread sits in a system call for a port that is read.
func TestReadsInThePoller(t *testing.T) {
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
		t.Errorf("%d ports being read take %d threads", ports, now-before)
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

// TestRights: that somebody is given a port, or that its entry is touched, as
// udev does, makes it no other.
func TestRights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ttyX")
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|3); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the gate needs the right to make a device: %v", err)
		}
		t.Skipf("cannot make a device: %v", err)
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

// TestRestarts: with its lines kept, a board restarts by the first opening of
// each stay.
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
