package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/config"
	"github.com/ferrulehq/ferrule/journal"
	"github.com/ferrulehq/ferrule/sim"
)

var cuts = flag.Int("cuts", 500, "how often TestCuts cuts the wire")

// outcome is how one call ended.
type outcome struct {
	token string // empty for a read
	code  ferrule.Code
	ran   bool // it may have run
	took  time.Duration
}

// TestCuts cuts the TCP connection to a board at random moments while it is being
// called: every call has one outcome, in time, that agrees with what the board
// counted; nothing that changes the world runs twice; what ran is in the
// journal; nothing is left behind.
func TestCuts(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
	t.Run("run", cutAndCall)
	eventually(t, 10*time.Second, fmt.Sprintf("no more than %d goroutines and %d files", goroutines, descriptors), func() bool {
		return runtime.NumGoroutine() <= goroutines && openFiles(t) <= descriptors
	})
}

func cutAndCall(t *testing.T) {
	const timeout = 2 * time.Second
	boards := startSim(t, sim.Config{})
	wire := newCutter(t, boards.Addrs()[0])
	g := startGateway(t, map[string]string{"robot": wire.Addr().String()}, func(c *config.Config) {
		c.Retry.Min, c.Retry.Max = config.Interval(4*time.Millisecond), config.Interval(20*time.Millisecond)
	})
	g.online("robot")

	var mu sync.Mutex
	var outcomes []outcome
	var answered atomic.Int64
	done := make(chan struct{})
	var callers sync.WaitGroup
	for w := range 4 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				o := outcome{}
				tool, args := "gpio_read", `{"pin":2}`
				if i%2 == 0 {
					o.token = fmt.Sprintf("%d-%d", w, i)
					tool, args = "pulse", fmt.Sprintf(`{"token":%q}`, o.token)
				}
				start := time.Now()
				_, err := g.call("robot", tool, args, timeout)
				o.took = time.Since(start)
				if err != nil {
					e := ferrule.AsError(err)
					o.code, o.ran = e.Code, e.MayHaveRun()
				} else {
					answered.Add(1)
				}
				mu.Lock()
				outcomes = append(outcomes, o)
				mu.Unlock()
				if o.code == ferrule.Offline {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for i := range *cuts {
		before := answered.Load()
		eventually(t, 20*time.Second, fmt.Sprintf("a call is answered before cut %d", i), func() bool { return answered.Load() > before })
		time.Sleep(rand.N(3 * time.Millisecond))
		wire.cut(i%2 == 0)
	}
	close(done)
	callers.Wait()
	g.online("robot")
	runs := boards.Boards[0].Runs()
	g.stop()
	judge(t, outcomes, runs, timeout)
	recorded(t, g.data, runs)
}

// judge compares outcomes with what the board counted.
func judge(t *testing.T, outcomes []outcome, runs map[string]int, timeout time.Duration) {
	t.Helper()
	codes := make(map[ferrule.Code]int)
	for _, o := range outcomes {
		codes[o.code]++
		if o.took > timeout+time.Second {
			t.Errorf("a call took %v, and its deadline was %v", o.took, timeout)
		}
		n := runs[o.token]
		switch {
		case o.token == "":
		case n > 1:
			t.Errorf("%s ran %d times", o.token, n)
		case o.code == "" && n != 1:
			t.Errorf("%s succeeded, and ran %d times", o.token, n)
		case o.code != "" && !o.ran && n != 0:
			t.Errorf("%s ran, and %s says that it did not", o.token, o.code)
		}
		switch o.code {
		case "", ferrule.Unanswered, ferrule.Offline:
		default:
			t.Errorf("%q ended in %s", o.token, o.code)
		}
	}
	t.Logf("%d calls: %v", len(outcomes), codes)
	if codes[ferrule.Unanswered] < *cuts/10 || codes[ferrule.Offline] == 0 || codes[""] == 0 {
		t.Errorf("the cuts were not at moments of every sort: %v", codes)
	}
}

// recorded checks that everything that ran is in the journal, which is whole.
func recorded(t *testing.T, data string, runs map[string]int) {
	t.Helper()
	phases := make(map[string][]ferrule.Phase)
	err := journal.Read(data, func(e ferrule.Entry) error {
		var args struct{ Token string }
		if e.Tool == "pulse" {
			if err := json.Unmarshal(e.Args, &args); err != nil {
				return err
			}
			phases[args.Token] = append(phases[args.Token], e.Phase)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for token := range runs {
		if got := phases[token]; len(got) != 2 || got[0] != ferrule.Intent || got[1] != ferrule.Outcome {
			t.Errorf("%s ran, and the journal has %q", token, got)
		}
	}
	if report, err := journal.Verify(data); err != nil || len(report.Findings) > 0 {
		t.Errorf("the journal: %+v, %v", report, err)
	}
}

// openFiles counts the descriptors of this process, where the system tells.
func openFiles(t *testing.T) int {
	if runtime.GOOS != "linux" {
		return 0
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
