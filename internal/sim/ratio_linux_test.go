//go:build bench

package sim_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/sim"
)

// idle is the number of toys, and limit the memory of each in bytes.
const idle, limit = 1500, 10 << 10

// TestMain runs the toys of TestRatioIdle in their own process.
func TestMain(m *testing.M) {
	if ota := os.Getenv("FERRULE_TEST_CALL"); ota != "" {
		if err := callIdle(ota, os.Getenv("FERRULE_TEST_TRANSPORT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// callIdle prints the memory of a bare socket with a reader, and of an idle toy.
func callIdle(ota, transport string) error {
	u, err := url.Parse(ota)
	if err != nil {
		return err
	}
	before := used()
	var conns []net.Conn
	for range idle {
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		go conn.Read(make([]byte, 1))
	}
	bare := (used() - before) / idle
	for _, conn := range conns {
		conn.Close()
	}
	before = used()
	connected := make(chan sim.Event, idle)
	toys, err := sim.NewToyClients(sim.ToyClientsConfig{
		URL: ota, Transport: transport, First: 1, Count: idle, From: netip.MustParsePrefix("127.9.0.0/16"), OnEvent: func(n sim.Event) { connected <- n },
	})
	if err != nil {
		return err
	}
	go toys.Run(context.Background()) // until the process ends
	for range idle {
		if n := <-connected; n.What != "connected" {
			return fmt.Errorf("%+v", n)
		}
	}
	time.Sleep(2 * time.Second) // let them be greeted
	toy := (used() - before) / idle
	runtime.KeepAlive(toys)
	_, err = fmt.Println(bare, toy)
	return err
}

// used returns the memory in use: heap and stacks.
func used() int64 {
	time.Sleep(300 * time.Millisecond) // let goroutines end
	for range 3 {                      // the second one empties pools
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestRatioIdle compares the memory of an idle toy with that of a bare socket with a reader.
func TestRatioIdle(t *testing.T) {
	for _, transport := range []string{sim.OverWebSocket, sim.OverMQTT} {
		t.Run(transport, func(t *testing.T) {
			g := startGateway(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "FERRULE_TEST_CALL="+g.url, "FERRULE_TEST_TRANSPORT="+transport)
			cmd.Stderr = os.Stderr
			var out []byte
			ended := make(chan error, 1)
			go func() {
				var err error
				out, err = cmd.Output()
				ended <- err
			}()
			for range idle {
				g.greet(t)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			var bare, toy int64
			if _, err := fmt.Sscan(string(out), &bare, &toy); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("an idle toy takes %d bytes, a socket with a reader %d: %.1f times as much", toy, bare, float64(toy)/float64(bare))
			if toy > limit {
				t.Errorf("limit is %d", limit)
			}
		})
	}
}
