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

// idle is how many toys do nothing, and most how many bytes of memory one of them
// may take.
const idle, most = 1500, 10 << 10

// TestMain makes the toys of TestRatioIdle a process of their own.
func TestMain(m *testing.M) {
	if ota := os.Getenv("FERRULE_TEST_CALL"); ota != "" {
		if err := callIdle(ota, os.Getenv("FERRULE_TEST_MEDIUM")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// callIdle tells what a bare socket with a reader takes, and what a toy does that
// was greeted and has nothing to do.
func callIdle(ota, medium string) error {
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
	connected := make(chan sim.News, idle)
	crowd, err := sim.NewCrowd(sim.CrowdConfig{
		URL: ota, Medium: medium, First: 1, Count: idle, From: netip.MustParsePrefix("127.9.0.0/16"), Tell: func(n sim.News) { connected <- n },
	})
	if err != nil {
		return err
	}
	go crowd.Run(context.Background()) // until the process ends
	for range idle {
		if n := <-connected; n.What != "connected" {
			return fmt.Errorf("%+v", n)
		}
	}
	time.Sleep(2 * time.Second) // let them be greeted
	toy := (used() - before) / idle
	runtime.KeepAlive(crowd)
	_, err = fmt.Println(bare, toy)
	return err
}

// used is the memory that is in use: the heap, and the stacks of goroutines.
func used() int64 {
	time.Sleep(300 * time.Millisecond) // let what is done end
	for range 3 {                      // what pools hold goes with the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestRatioIdle: what an idle toy costs, beside a bare socket with a goroutine that
// reads it.
func TestRatioIdle(t *testing.T) {
	for _, medium := range []string{sim.OverWebSocket, sim.OverMQTT} {
		t.Run(medium, func(t *testing.T) {
			g := startGateway(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "FERRULE_TEST_CALL="+g.url, "FERRULE_TEST_MEDIUM="+medium)
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
			if toy > most {
				t.Errorf("want at most %d", most)
			}
		})
	}
}
