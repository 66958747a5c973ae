//go:build bench

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/gateway"
)

// TestRatioAgent: what the gateway adds to a call of an agent over HTTP, against the
// local road. G is a call through the gateway, B one through a server of the bare
// SDK that makes the same round trip to an identical board, L the local road. They
// are made in turn, and garbage is collected as seldom in all three processes.
func TestRatioAgent(t *testing.T) {
	addrs := simProcess(t, 3)
	t.Setenv("GOGC", fmt.Sprint(gateway.SmallHeapGOGC))
	defer debug.SetGCPercent(debug.SetGCPercent(gateway.SmallHeapGOGC))
	up, bare := upProcess(t, "ferrule", addrs[0], ""), bareProcess(t, addrs[1])
	g := startGateway(t, map[string]string{"robot": addrs[2]})
	g.online("robot")
	const args = `{"pin":2}`
	local := road(t, g, "robot", "gpio_read", args)
	for _, era := range eras {
		through, without := agentCall(t, up.url, era, "robot__gpio_read", args), agentCall(t, bare.url, era, "gpio_read", args)
		medians(500, through, without, local) // to warm up
		var added, gs, bs, ls []time.Duration
		for range rounds {
			m := medians(500, through, without, local)
			added = append(added, m[0]-m[1])
			gs, bs, ls = append(gs, m[0]), append(bs, m[1]), append(ls, m[2])
		}
		most(t, era+": what the gateway adds to a call against the local road, (G-B)/L", added, ls, 1.5)
		G, B, L := median(gs), median(bs), median(ls)
		t.Logf("%s: G %v, B %v, L %v, G/B %.2f", era, G, B, L, float64(G)/float64(B))
	}
}

// agentCall returns a call of a tool by an agent over HTTP.
func agentCall(t *testing.T, url string, era string, tool, args string) func() {
	t.Helper()
	a, err := newPlainAgent(t.Context(), &http.Client{}, url, era)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := a.call(t.Context(), tool, args); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRatioStart: how long it takes from the start of `ferrule mcp` until the tool of
// a board is listed, beside the same for a server of the bare SDK.
func TestRatioStart(t *testing.T) {
	const limit = 250 * time.Millisecond
	addrs := simProcess(t, 2)
	listed := func(tool string, command string, args ...string) func() {
		return func() {
			cmd := exec.Command(command, args...)
			in, out := startProcess(t, cmd)
			fmt.Fprintf(in, "%s\n%s\n%s\n", initialize, initialized, request(legacy, 1, "tools/list", ""))
			for {
				line, err := out.ReadString('\n')
				if err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				if strings.Contains(line, `"id":1,`) {
					if !strings.Contains(line, tool) {
						t.Fatalf("%s lists %s", command, line)
					}
					cmd.Process.Kill()
					return
				}
			}
		}
	}
	data := t.TempDir()
	start, bare := listed("robot__gpio_read", "ferrule", "mcp", "--data", data, "--tcp", "robot="+addrs[0]), listed("gpio_read", "bare", addrs[1], "mcp")
	m := medians(15, start, bare)
	t.Logf("from the start of ferrule mcp until a board's tool is listed: %v, at most %v; the bare SDK: %v", m[0], limit, m[1])
	if m[0] > limit {
		t.Errorf("it took %v", m[0])
	}
}

// TestRatioSessions: the memory of an idle agent with an open stream, in the gateway
// against a server of the bare SDK, two thousand of each era at once. None of them
// is forgotten, however long it asks for nothing; each is told when a device goes
// away; and none is left when the streams are closed.
func TestRatioSessions(t *testing.T) {
	addrs := simProcess(t, 2)
	got, base := make(map[string][]int), make(map[string][]int)
	for range 3 {
		up := upProcess(t, "weighed", addrs[0], "agents: {sessions: 4000, idle: 3s}")
		idleSessions(t, up, bareProcess(t, addrs[1]), 2000, got, base)
	}
	for _, era := range eras {
		most(t, era+": bytes of RSS of an idle session: gateway against bare SDK", got[era], base[era], 1.2)
	}
}

// idleSessions adds the memory of a session in the gateway to got, and that in the
// bare server to base.
func idleSessions(t *testing.T, up, bare process, count int, got, base map[string][]int) {
	t.Helper()
	for _, p := range []process{up, bare} {
		for _, era := range eras {
			openCrowd(t, p.url, era, 100).leave() // to warm up
		}
	}
	time.Sleep(6 * time.Second) // they are forgotten
	empty := up.memory(t)
	crowds := make(map[string]*crowd)
	for _, era := range eras {
		before := up.memory(t)
		crowds[era] = openCrowd(t, up.url, era, count)
		got[era] = append(got[era], (up.memory(t)-before)/count)
		before = bare.memory(t)
		openCrowd(t, bare.url, era, count)
		base[era] = append(base[era], (bare.memory(t)-before)/count)
	}
	for _, era := range eras {
		if _, _, err := openStream(t.Context(), plainClient(), up.url, era); !errors.Is(err, errStatus(http.StatusServiceUnavailable)) {
			t.Errorf("%s: one more agent than there may be: %v", era, err)
		}
	}
	full := up.memory(t)

	if out, err := exec.Command("ferrule", "release", "robot", "--data", up.data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	gone := time.Now()
	for _, era := range eras {
		t.Logf("%s: the last of %d streams was told %v after a device had gone", era, count, crowds[era].told(t).Sub(gone).Round(time.Millisecond))
	}

	for _, c := range crowds {
		c.leave()
	}
	time.Sleep(7 * time.Second) // idle, and then some
	left := up.memory(t)
	t.Logf("memory: %d MB without sessions, %d with all, %d when they have ended, a fifth of the difference at most", empty>>20, full>>20, left>>20)
	if left-empty > (full-empty)/5 {
		t.Errorf("%d bytes are left", left-empty)
	}
	for _, a := range crowds[legacy].agents {
		if _, err := a.call(t.Context(), "gateway__status", `{}`); !errors.Is(err, errStatus(http.StatusNotFound)) {
			t.Fatalf("a session without a stream: %v", err)
		}
	}
	for _, era := range eras {
		if _, _, err := openStream(t.Context(), plainClient(), up.url, era); err != nil {
			t.Errorf("%s: an agent when the others have gone: %v", era, err)
		}
	}
}

// crowd is many agents with open streams.
type crowd struct {
	heard  chan time.Time // when each was told of a change
	agents []*plainAgent
	count  int
	cancel context.CancelFunc
	client *http.Client
	wg     sync.WaitGroup
}

func plainClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
}

// openStream begins a session with an open stream, and returns when it is open.
func openStream(ctx context.Context, client *http.Client, url string, era string) (*plainAgent, *bufio.Scanner, error) {
	a, err := newPlainAgent(ctx, client, url, era)
	if err != nil {
		return nil, nil, err
	}
	resp, err := a.listen(ctx)
	if err != nil {
		return nil, nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() {
		return nil, nil, fmt.Errorf("the stream has ended: %v", lines.Err())
	}
	return a, lines, nil
}

// openCrowd opens many streams, a few at once.
func openCrowd(t *testing.T, url string, era string, count int) *crowd {
	t.Helper()
	c := &crowd{heard: make(chan time.Time, count), count: count, client: plainClient()}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	t.Cleanup(c.leave)
	failed := make(chan error, count)
	var opening sync.WaitGroup
	var mu sync.Mutex // guards c.agents
	seats := make(chan struct{}, 16)
	for range count {
		opening.Add(1)
		seats <- struct{}{}
		c.wg.Go(func() {
			a, lines, err := openStream(ctx, c.client, url, era)
			mu.Lock()
			c.agents = append(c.agents, a)
			mu.Unlock()
			<-seats
			opening.Done()
			if err != nil {
				failed <- err
				return
			}
			for lines.Scan() {
				if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
					c.heard <- time.Now()
					break
				}
			}
			for lines.Scan() { // until it is over
			}
		})
	}
	opening.Wait()
	select {
	case err := <-failed:
		t.Fatalf("%s: %d agents could not be connected, %v", era, len(failed)+1, err)
	default:
	}
	return c
}

// told waits until all were told, and returns when the last one was.
func (c *crowd) told(t *testing.T) (last time.Time) {
	t.Helper()
	patience := time.After(30 * time.Second)
	for i := range c.count {
		select {
		case at := <-c.heard:
			if at.After(last) {
				last = at
			}
		case <-patience:
			t.Fatalf("only %d of %d were told", i, c.count)
		}
	}
	return last
}

// leave closes all streams.
func (c *crowd) leave() {
	c.cancel()
	c.wg.Wait()
	c.client.CloseIdleConnections()
}
