package main

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// guesser sends wrong tokens, each on a connection of its own.
type guesser struct {
	gateway string // address

	sent, refused, limited atomic.Int64
	running                sync.WaitGroup
}

// guessing is the number of addresses that a guesser has.
const guessing = 20

// guess sends one token. Wide uses all addresses, and otherwise only one. It is plain TCP,
// because the test measures on the same machine.
func (g *guesser) guess(wide bool) error {
	n := g.sent.Add(1)
	from := byte(1)
	if wide {
		from += byte(n % guessing)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}, Timeout: ample}
	conn, err := dialer.Dial("tcp", g.gateway)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(ample))
	if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer fer_%043d\r\nContent-Length: 2\r\n\r\n{}", g.gateway, n); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	switch status, _, _ := strings.Cut(string(answer), "\r\n"); {
	case strings.HasPrefix(status, "HTTP/1.1 401 "):
		g.refused.Add(1)
	case strings.HasPrefix(status, "HTTP/1.1 429 "):
		g.limited.Add(1)
	default:
		return fmt.Errorf("a wrong token got %q, %v", status, err)
	}
	return nil
}

// flood sends a number of tokens per second until the returned function is called. It
// catches up if the machine is busy.
func (g *guesser) flood(t *testing.T, perSecond int, wide bool) (end func()) {
	stop := make(chan struct{})
	g.running.Go(func() {
		every := time.Second / time.Duration(perSecond)
		next := time.NewTicker(every)
		defer next.Stop()
		for due := time.Now(); ; {
			select {
			case <-stop:
				return
			case now := <-next.C:
				for ; !due.After(now); due = due.Add(every) {
					g.running.Go(func() {
						if err := g.guess(wide); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	})
	return func() {
		close(stop)
		g.running.Wait()
	}
}

// accessRecords returns the records of tokens that were refused, and for how many each of
// them stands.
func (g *testGateway) accessRecords() (records, attempts int) {
	g.t.Helper()
	if err := journal.Read(g.data, func(e ferrule.Entry) error {
		if e.Phase == ferrule.Access && e.Tool == string(ferrule.AccessTokenUsed) && e.Code == ferrule.Denied {
			more := 0
			if fmt.Sscanf(e.Message, "%d more ", &more); more == 0 {
				more = 1
			}
			if !strings.HasPrefix(e.From, "127.0.0.") || strings.Contains(e.Message, "fer_") {
				g.t.Errorf("got %+v", e)
			}
			records++
			attempts += more
		}
		return nil
	}); err != nil {
		g.t.Fatal(err)
	}
	return records, attempts
}

// maxRefusedRecords is the limit of records of refused tokens in a minute: three of each
// address, and one that sums up the others.
const maxRefusedRecords = guessing * 4

const floodToken = "a-token-of-sixteen"

// startFlooded starts a gateway that needs a token, with a device.
func startFlooded(t *testing.T) (*testGateway, *rawAgent) {
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, unmeasured, func(c *config.Config) {
		c.Auth.Tokens = []config.Token{{Name: "ada", Token: floodToken}}
		c.Calls.PerMinute = 0
	})
	g.online("robot")
	return g, newRawAgent(t, g.url("/mcp"), legacy, floodToken)
}

// readPin reads a pin of the device and returns how long it took.
func (a *rawAgent) readPin() time.Duration {
	start := time.Now()
	a.result("tools/call", map[string]any{"name": "robot__gpio_read", "arguments": map[string]any{"pin": 2}})
	return time.Since(start)
}

// TestWrongTokens checks that wrong tokens from one and from many addresses are refused and
// recorded in few records that count all of them, and that a valid token from the same
// address works.
func TestWrongTokens(t *testing.T) {
	g, agent := startFlooded(t)
	guesses := &guesser{gateway: g.Addr()}
	for i := range 300 {
		if err := guesses.guess(i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	agent.readPin()
	if guesses.refused.Load() < 60 || guesses.limited.Load() < 60 {
		t.Errorf("%d got 401, %d got 429", guesses.refused.Load(), guesses.limited.Load())
	}
	g.stop()
	if records, attempts := g.accessRecords(); records > maxRefusedRecords || attempts != 300 {
		t.Errorf("%d records of %d attempts", records, attempts)
	}
}

// TestWrongTokenFlood: during 200 wrong tokens a second, from one address and from many,
// calls take at most 1.2 times as long as without, and memory stays flat. Windows with and
// without the flood take turns, because the machine is not equally fast all the time.
func TestWrongTokenFlood(t *testing.T) {
	figure.Only(t)
	const perSecond, rounds, window, limit = 200, 3, 450 * time.Millisecond, 1.2
	g, agent := startFlooded(t)
	guesses := &guesser{gateway: g.Addr()}
	calls := func() (took []time.Duration) {
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for end := time.Now().Add(window); time.Now().Before(end); <-pace.C {
			took = append(took, agent.readPin())
		}
		return took
	}
	flooded := func(wide bool) []time.Duration {
		end := guesses.flood(t, perSecond, wide)
		defer end()
		return calls()
	}
	calls()
	flooded(true) // to warm up
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	best := 0.0
	for range rounds {
		var usual, during []time.Duration
		for i := range 5 {
			usual = append(usual, calls()...)
			during = append(during, flooded(i%2 == 0)...)
		}
		slices.Sort(usual)
		slices.Sort(during)
		ratio := float64(during[len(during)/2]) / float64(usual[len(usual)/2])
		t.Logf("a call takes %v, and %v during the flood: %.2f times as long", usual[len(usual)/2], during[len(during)/2], ratio)
		if best == 0 || ratio < best {
			best = ratio
		}
		if best <= limit {
			break
		}
	}
	figure.AtMost(t, "time of a call during the flood, as a ratio", best, limit)
	figure.AtMost(t, "bytes of the heap after the flood", heap(), before+4<<20)
	sent := int(guesses.sent.Load())
	g.stop()
	records, attempts := g.accessRecords()
	t.Logf("%d wrong tokens left %d records", sent, records)
	if records > maxRefusedRecords || attempts != sent {
		t.Errorf("%d records of %d attempts, want at most %d of %d", records, attempts, maxRefusedRecords, sent)
	}
}
