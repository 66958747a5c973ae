//go:build bench

package websocket_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
)

// idle is the number of idle devices, maxBytes the memory of the gateway that each may
// take.
const idle, maxBytes = 1500, 12 << 10

// TestMain runs the devices of TestRatioIdle in a separate process.
func TestMain(m *testing.M) {
	if address := os.Getenv("FERRULE_TEST_DIAL"); address != "" {
		if err := dialIdle(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// dialIdle connects the idle devices and keeps them until standard input ends.
func dialIdle(address string) error {
	var conns []net.Conn
	for i := range idle {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		at := fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff)
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s secret\r\nClient-Id: 7b94d69a-9808-4c59-9c9b-704333b38aff\r\n"+
			"Connection: Upgrade\r\nDevice-Id: %s\r\nProtocol-Version: 1\r\n"+
			"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\n\r\n", at, at)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 101") {
			return fmt.Errorf("device %d: %q, %v", i, line, err)
		}
		conns = append(conns, conn)
	}
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(conns)
	return nil
}

// startDevices starts the process of the devices.
func startDevices(t *testing.T, address string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FERRULE_TEST_DIAL="+address)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// used returns the memory in use: the heap and the stacks.
func used() int64 {
	time.Sleep(300 * time.Millisecond) // let handlers return
	for range 3 {                      // pools are emptied by the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestRatioIdle compares the memory of an idle device with that of a bare socket and
// the goroutine that reads it.
func TestRatioIdle(t *testing.T) {
	var bare, device int64
	t.Run("sockets", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		before := used()
		startDevices(t, ln.Addr().String())
		for range idle {
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
				conn.Read(make([]byte, 4096))
				io.WriteString(conn, "HTTP/1.1 101 \r\n\r\n")
				conn.Read(make([]byte, 1))
			}()
		}
		bare = (used() - before) / idle
	})
	t.Run("devices", func(t *testing.T) {
		g := start(t, tokens{}, func(c *websocket.Config) { c.Inbound.PerHost, c.Inbound.Host.Burst = 2*idle, 2*idle })
		before := used()
		startDevices(t, strings.TrimSuffix(strings.TrimPrefix(g.url, "ws://"), "/xiaozhi/v1/"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range idle {
			link, err := g.sighting(t).Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { link.Close() })
			go link.Recv(ctx)
		}
		device = (used() - before) / idle
	})
	t.Logf("an idle device takes %d bytes, a socket with a reader %d: %.1f times as much", device, bare, float64(device)/float64(bare))
	if device > maxBytes {
		t.Errorf("limit is %d bytes", maxBytes)
	}
}
