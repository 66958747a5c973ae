package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestSecure: servers on other machines must use TLS. The error says what to write, and
// contains no password.
func TestSecure(t *testing.T) {
	for _, test := range []struct {
		server, want string // of the error; none if empty
	}{
		{"tls://nats.example.com:4222", ""},
		{"wss://nats.example.com", ""},
		{"nats://127.0.0.1:4222", ""},
		{"nats://me:hunter2@localhost:4222", ""},
		{"nats://[::1]:4222", ""},
		{"ws://127.0.0.2:80", ""},
		{"nats://me:hunter2@10.0.0.1:4222", "Write tls://10.0.0.1:4222, and name the file of the CA"},
		{"nats://nats.example.com", "Write tls://nats.example.com, and"},
		{"nats://localhost.example.com:4222", "Write tls://localhost.example.com:4222"},
		{"nats://127.0.0.1.example.com:4222", "is on another machine"},
		{"nats://[fe80::1]:4222", "is on another machine"},
		{"nats://0.0.0.0:4222", "is on another machine"},
		{"ws://10.0.0.1:80", "Write wss://10.0.0.1:80"},
		{"NATS://10.0.0.1:4222", "Write tls://10.0.0.1:4222"},
		{"http://127.0.0.1:4222", "must start with tls://"},
		{"10.0.0.1:4222", "must be addresses such as tls://"},
		{"nats://", "must be addresses such as tls://"},
	} {
		for _, mode := range []Mode{Join, Leaf} {
			cfg := DefaultConfig()
			cfg.Mode, cfg.Secret, cfg.Servers = mode, "file", []string{"tls://first.example.com", test.server}
			err := cfg.Check()
			if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("%s %s: %v", mode, test.server, err)
			}
			if test.want == "" {
				continue
			}
			// Nor does a node connect if its configuration was not checked.
			e, err := Start(cfg, t.TempDir(), slog.New(slog.DiscardHandler), func() {})
			if err == nil {
				e.Close()
				t.Errorf("%s %s was started", mode, test.server)
			}
		}
	}
}

// eavesdropper is a server without TLS that keeps what it receives.
type eavesdropper struct {
	net.Listener
	silent   bool         // nothing should come, so it does not wait long
	info     atomic.Value // string
	mu       sync.Mutex
	received []byte
	visits   int
}

func eavesdrop(t *testing.T, silent bool) *eavesdropper {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &eavesdropper{Listener: ln, silent: silent}
	e.info.Store(`{"server_id":"x","server_name":"x","version":"2.15.2","proto":1,"headers":true,"max_payload":1048576}`)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { e.serve(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return e
}

func (e *eavesdropper) serve(conn net.Conn) {
	defer conn.Close()
	fmt.Fprintf(conn, "INFO %s\r\n", e.info.Load())
	const pause = 200 * time.Millisecond
	conn.SetReadDeadline(time.Now().Add(wait.Ample))
	if e.silent {
		conn.SetReadDeadline(time.Now().Add(pause))
	}
	var got []byte
	for part := make([]byte, 1024); !bytes.Contains(got, []byte("PING")); {
		n, err := conn.Read(part)
		if got = append(got, part[:n]...); err != nil {
			break
		}
		conn.SetReadDeadline(time.Now().Add(pause))
	}
	fmt.Fprint(conn, "PONG\r\n")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.received = append(e.received, got...)
	e.visits++
}

// heard returns what it received during at least two complete visits.
func (e *eavesdropper) heard(t *testing.T) []byte {
	t.Helper()
	wait.For(t, "two visits", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.visits >= 2
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	return bytes.Clone(e.received)
}

// TestNoDowngrade: a server that offers no TLS gets no password from a node that asks for
// TLS, and the reason says so.
func TestNoDowngrade(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Join, Leaf} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			spy := eavesdrop(t, mode == Join)
			cfg := DefaultConfig()
			cfg.Mode, cfg.Servers = mode, []string{"tls://acme:hunter2@" + spy.Addr().String()}
			e, err := Start(cfg, t.TempDir(), slog.New(slog.DiscardHandler), func() {})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if mode == Join {
				wait.For(t, "the reason", func() bool {
					err := e.Unreachable()
					return err != nil && strings.Contains(err.Error(), "the server offers no TLS, so nothing was sent to it")
				})
			}
			heard := spy.heard(t)
			if bytes.Contains(heard, []byte("hunter2")) || bytes.Contains(heard, []byte("CONNECT")) {
				t.Errorf("the server heard %q", heard)
			}
			// A leaf begins a TLS handshake, which a server without TLS does not understand.
			if mode == Join && len(heard) > 0 || mode == Leaf && (len(heard) == 0 || heard[0] != 0x16) {
				t.Errorf("the server heard %q", heard)
			}
			if e.Unreachable() == nil {
				t.Error("it is connected")
			}
		})
	}
}

// TestDiscovered: a server on this machine announces one elsewhere. It is not used without
// TLS.
func TestDiscovered(t *testing.T) {
	t.Parallel()
	spy := eavesdrop(t, false)
	spy.info.Store(`{"server_id":"x","server_name":"x","version":"2.15.2","proto":1,"headers":true,"max_payload":1048576,"connect_urls":["192.0.2.1:4222"]}`)
	var log syncBuffer
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers = Join, []string{"nats://" + spy.Addr().String()}
	e, err := Start(cfg, t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	wait.For(t, "the other server is refused", func() bool {
		return strings.Contains(log.String(), "a NATS server on another machine is not used") && strings.Contains(log.String(), "192.0.2.1:4222")
	})
	if _, err := newLoopbackDialer(slog.New(slog.DiscardHandler)).Dial("tcp", "192.0.2.1:4222"); !errors.Is(err, errPlain) {
		t.Errorf("got %v", err)
	}
	if remote, err := hubRemote(cfg); err != nil || !remote.IgnoreDiscoveredServers || remote.TLS {
		t.Errorf("got %+v, %v", remote, err)
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
