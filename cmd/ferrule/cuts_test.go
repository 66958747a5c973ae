package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var cuts = flag.Int("cuts", 500, "how often TestCuts cuts the connection")

// outcome is the outcome of one call.
type outcome struct {
	id    string // of the call
	token string // of a pulse; empty for a read
	code  ferrule.Code
	ran   bool // it may have run
	took  time.Duration
}

// TestCuts cuts the TCP connection to a board at random moments while it is being
// called: every call has one outcome that agrees with what the board counted; nothing
// that changes the world runs twice; what ran is in the journal; nothing is left behind.
func TestCuts(t *testing.T) {
	runtime.GC() // closes what earlier tests left
	before := openFiles(t)
	goroutines, descriptors := runtime.NumGoroutine(), len(before)
	t.Run("run", cutAndCall)
	defer func() {
		if t.Failed() {
			stacks := make([]byte, 1<<16)
			t.Logf("files %q, before %q; goroutines:\n%s", openFiles(t), before, stacks[:runtime.Stack(stacks, true)])
		}
	}()
	wait.For(t, fmt.Sprintf("no more than %d goroutines and %d files", goroutines, descriptors), func() bool {
		runtime.GC() // what is still referred to counts
		return runtime.NumGoroutine() <= goroutines && len(openFiles(t)) <= descriptors
	})
}

func cutAndCall(t *testing.T) {
	boards := startSim(t, sim.Config{})
	link := newCutter(t, boards.Addrs()[0])
	g := startGateway(t, map[string]string{"robot": link.Addr().String()}, func(c *config.Config) {
		c.Retry.Min, c.Retry.Max = config.Interval(4*time.Millisecond), config.Interval(20*time.Millisecond)
		c.Retry.Wait = config.Interval(ample)
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
				o := outcome{id: fmt.Sprintf("%d-%d", w, i)}
				tool, args := "gpio_read", `{"pin":2}`
				if i%2 == 0 {
					o.token = "token " + o.id
					tool, args = "pulse", fmt.Sprintf(`{"token":%q}`, o.token)
				}
				start := time.Now()
				_, err := g.callAs(o.id, "robot", tool, args, ample)
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
		wait.For(t, fmt.Sprintf("a call is answered before cut %d", i), func() bool { return answered.Load() > before })
		time.Sleep(rand.N(3 * time.Millisecond))
		link.cut(i%2 == 0)
	}
	close(done)
	callers.Wait()
	g.online("robot")
	runs := boards.Boards[0].Runs()
	g.stop()
	judge(t, outcomes, runs)
	recorded(t, g.data, outcomes, runs)
}

// judge compares outcomes with the count of the board.
func judge(t *testing.T, outcomes []outcome, runs map[string]int) {
	t.Helper()
	codes := make(map[ferrule.Code]int)
	var longest time.Duration
	for _, o := range outcomes {
		codes[o.code]++
		longest = max(longest, o.took)
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
		case "", ferrule.Unanswered, ferrule.Offline: // judged below
		default:
			t.Errorf("%q ended in %s", o.token, o.code)
		}
	}
	t.Logf("%d calls: %v", len(outcomes), codes)
	figure.AtMost(t, "a call while the connection is cut", longest, 10*time.Second)
	if codes[ferrule.Unanswered] < *cuts/10 || codes[""] == 0 {
		t.Errorf("the cuts were not at moments of every sort: %v", codes)
	}
	if codes[ferrule.Offline] > 0 {
		t.Errorf("%d calls did not wait for the reconnect", codes[ferrule.Offline])
	}
}

// recorded checks the journal: it is intact, each call has one outcome, which is the one
// that the caller got, and what ran was recorded before.
func recorded(t *testing.T, data string, outcomes []outcome, runs map[string]int) {
	t.Helper()
	entries := make(map[string][]ferrule.Entry)
	err := journal.Read(data, func(e ferrule.Entry) error {
		entries[e.Call] = append(entries[e.Call], e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		got := entries[o.id]
		intended := len(got) > 0 && got[0].Phase == ferrule.Intent
		if runs[o.token] > 0 && !intended {
			t.Errorf("%s ran, and the journal has %+v", o.token, got)
		}
		if intended {
			got = got[1:]
		}
		if len(got) != 1 || got[0].Phase != ferrule.Outcome || got[0].Code != o.code || got[0].MayHaveRun != o.ran {
			t.Errorf("call %s ended in %q, may have run: %t; the journal has %+v", o.id, o.code, o.ran, got)
		}
	}
	if report, err := journal.Verify(data); err != nil || len(report.Findings) > 0 {
		t.Errorf("the journal: %+v, %v", report, err)
	}
}

// openFiles returns the open files of this process, if the system shows them.
func openFiles(t *testing.T) (all []string) {
	if runtime.GOOS != "linux" {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, _ := os.Readlink("/proc/self/fd/" + e.Name())
		all = append(all, name)
	}
	return all
}
