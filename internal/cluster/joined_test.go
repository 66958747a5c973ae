package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

var deaths = flag.Int("deaths", 1, "how many servers TestServersDie kills, one after the other")

// TestServersDie: three real servers, of which one after the other is killed while
// calls cross between nodes. Every call ends, none runs twice, and one that is said
// not to have run has not.
func TestServersDie(t *testing.T) {
	t.Parallel()
	servers := natscluster.Start(t, natscluster.Options{})
	cfg := DefaultConfig()
	cfg.Mode, cfg.Tenant, cfg.Shards, cfg.Servers = Join, "acme", 4, strings.Split(servers.URLs(), ",")
	nodes := []*site{node(t, "a", cfg), node(t, "b", cfg), node(t, "c", cfg)}
	var mu sync.Mutex
	ran := make(map[string]int)
	for i, n := range nodes {
		n.serve = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			ran[string(call.Args)]++
			return &ferrule.Result{Value: json.RawMessage("1")}, nil
		}
		n.has(fmt.Sprint("d", i), "arm", ferrule.StateOnline)
	}
	eventually(t, 60*time.Second, "a sees all", func() bool { return nodes[0].sees("d1") != nil && nodes[0].sees("d2") != nil })

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var count, failed atomic.Int64
	type outcome struct {
		args string
		err  *ferrule.Error
	}
	var outcomes []outcome
	var gaps []time.Duration
	for w := range 8 {
		wg.Go(func() {
			last := time.Now()
			for n := 0; ctx.Err() == nil; n++ {
				call := nodes[0].call(fmt.Sprint("d", 1+w%2), "move")
				args := fmt.Sprintf(`{"w":%d,"n":%d}`, w, n)
				call.Args = json.RawMessage(args)
				limit, stop := context.WithTimeout(t.Context(), 10*time.Second)
				_, err := nodes[0].bus.call(limit, call)
				stop()
				count.Add(1)
				mu.Lock()
				if err == nil {
					outcomes = append(outcomes, outcome{args, nil})
					gaps = append(gaps, time.Since(last))
					last = time.Now()
				} else {
					failed.Add(1)
					outcomes = append(outcomes, outcome{args, ferrule.AsError(err)})
				}
				mu.Unlock()
			}
		})
	}
	for round := range *deaths {
		time.Sleep(time.Second)
		servers.Servers[round].Kill()
		time.Sleep(2 * time.Second)
		fresh, start := fmt.Sprint("fresh", round), time.Now()
		nodes[1].has(fresh, "arm", ferrule.StateOnline)
		eventually(t, 30*time.Second, "what is new is seen", func() bool { return nodes[0].sees(fresh) != nil && nodes[2].sees(fresh) != nil })
		t.Logf("with one server dead, a new device was seen after %v", time.Since(start).Round(time.Millisecond))
		servers.Servers[round].Start()
		servers.WaitHealthy()
		again := fmt.Sprint("again", round)
		nodes[1].has(again, "arm", ferrule.StateOnline)
		eventually(t, 30*time.Second, "what is new is seen", func() bool { return nodes[0].sees(again) != nil && nodes[2].sees(again) != nil })
	}
	time.Sleep(500 * time.Millisecond)
	cancel()
	wg.Wait()

	slices.Sort(gaps)
	t.Logf("%d calls, %d failed; longest times between two answers of one caller: %v", count.Load(), failed.Load(), gaps[max(0, len(gaps)-10):])
	codes := make(map[string]int)
	for _, o := range outcomes {
		n := ran[o.args]
		switch {
		case n > 1:
			t.Errorf("%s ran %d times", o.args, n)
		case o.err == nil && n != 1:
			t.Errorf("%s succeeded and did not run", o.args)
		case o.err != nil && !o.err.MayHaveRun() && n > 0:
			t.Errorf("%s ran, and it is said that it did not: %v", o.args, o.err)
		}
		if o.err != nil {
			codes[string(o.err.Code)+": "+o.err.Message]++
		}
	}
	t.Logf("failures: %v", codes)
	if longest := gaps[len(gaps)-1]; longest > 2*time.Second {
		t.Errorf("a caller was without an answer for %v", longest)
	}
}
