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
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var deaths = flag.Int("deaths", 1, "how many servers TestServersDie kills")

// TestServersDie kills one NATS server after the other while nodes call each other. Every
// call ends, none runs twice, and the errors are right about whether it ran.
func TestServersDie(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	servers := natscluster.Start(t, natscluster.Options{})
	cfg := DefaultConfig()
	cfg.Mode, cfg.Tenant, cfg.Shards, cfg.Servers = Join, "acme", 4, strings.Split(servers.URLs(), ",")
	nodes := []*testNode{node(t, "a", cfg), node(t, "b", cfg), node(t, "c", cfg)}
	var mu sync.Mutex
	ran := make(map[string]int)
	for i, n := range nodes {
		n.serve = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			ran[string(call.Args)]++
			return &ferrule.Result{Value: json.RawMessage("1")}, nil
		}
		n.putDevice(fmt.Sprint("d", i), "arm", ferrule.StateOnline)
	}
	wait.For(t, "a sees all", func() bool { return nodes[0].seen("d1") != nil && nodes[0].seen("d2") != nil })

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
				call := nodes[0].newCall(fmt.Sprint("d", 1+w%2), "move")
				args := fmt.Sprintf(`{"w":%d,"n":%d}`, w, n)
				call.Args = json.RawMessage(args)
				limit, stop := context.WithTimeout(t.Context(), 10*time.Second)
				_, err := nodes[0].cluster.call(limit, call)
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
		nodes[1].putDevice(fresh, "arm", ferrule.StateOnline)
		wait.For(t, "a new device is seen", func() bool { return nodes[0].seen(fresh) != nil && nodes[2].seen(fresh) != nil })
		t.Logf("with one server dead, a new device was seen after %v", time.Since(start).Round(time.Millisecond))
		servers.Servers[round].Start()
		servers.WaitHealthy()
		again := fmt.Sprint("again", round)
		nodes[1].putDevice(again, "arm", ferrule.StateOnline)
		wait.For(t, "a new device is seen", func() bool { return nodes[0].seen(again) != nil && nodes[2].seen(again) != nil })
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
			t.Errorf("%s succeeded but did not run", o.args)
		case o.err != nil && !o.err.MayHaveRun() && n > 0:
			t.Errorf("%s ran, but the error says that it did not: %v", o.args, o.err)
		}
		if o.err != nil {
			codes[string(o.err.Code)+": "+o.err.Message]++
		}
	}
	t.Logf("failures: %v", codes)
	figure.AtMost(t, "longest time between two answers of one caller", gaps[len(gaps)-1], 2*time.Second)
}
