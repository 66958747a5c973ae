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
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/gateway"
)

// TestRatioAgent measures what the gateway adds to a call of an agent over HTTP. G is a
// call through the gateway, B one through a server with the bare SDK that makes the same
// round trip to an identical board, L a call through the local pipeline. They take
// turns, with the same GOGC in all processes.
func TestRatioAgent(t *testing.T) {
	addrs := simProcess(t, 3)
	t.Setenv("GOGC", fmt.Sprint(gateway.SmallHeapGOGC))
	defer debug.SetGCPercent(debug.SetGCPercent(gateway.SmallHeapGOGC))
	up, bare := upProcess(t, "ferrule", addrs[0], ""), bareProcess(t, addrs[1])
	g := startGateway(t, map[string]string{"robot": addrs[2]})
	g.online("robot")
	const args = `{"pin":2}`
	local := pipelineCall(t, g, "robot", "gpio_read", args)
	for _, mcpVersion := range mcpVersions {
		through, without := agentCall(t, up.url, mcpVersion, "robot__gpio_read", args), agentCall(t, bare.url, mcpVersion, "gpio_read", args)
		medians(500, through, without, local) // to warm up
		var added, gs, bs, ls []time.Duration
		for range rounds {
			m := medians(500, through, without, local)
			added = append(added, m[0]-m[1])
			gs, bs, ls = append(gs, m[0]), append(bs, m[1]), append(ls, m[2])
		}
		most(t, mcpVersion+": what the gateway adds to a call against the local pipeline, (G-B)/L", added, ls, 1.5)
		G, B, L := median(gs), median(bs), median(ls)
		t.Logf("%s: G %v, B %v, L %v, G/B %.2f", mcpVersion, G, B, L, float64(G)/float64(B))
	}
}

// agentCall returns a call of a tool by an agent over HTTP.
func agentCall(t *testing.T, url string, mcpVersion string, tool, args string) func() {
	t.Helper()
	a, err := newPlainAgent(t.Context(), &http.Client{}, url, mcpVersion)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := a.call(t.Context(), tool, args); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRatioStart measures the time from the start of `ferrule mcp` until a tool is
// listed, against a server with the bare SDK.
func TestRatioStart(t *testing.T) {
	const limit = 150 * time.Millisecond
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

// TestRatioSessions measures the memory of an idle agent with an open stream, against a
// server with the bare SDK, with two thousand agents of each version. No session
// expires, each agent is told when a device goes offline, and none is left when the
// streams are closed.
func TestRatioSessions(t *testing.T) {
	addrs := simProcess(t, 2)
	got, base := make(map[string][]int), make(map[string][]int)
	for range 3 {
		up := upProcess(t, "weighed", addrs[0], "agents: {sessions: 4000, idle: 3s, open_loopback: true}")
		idleSessions(t, up, bareProcess(t, addrs[1]), 2000, got, base)
	}
	for mcpVersion, limit := range map[string]float64{legacy: 1.2, modern: 0.75} {
		most(t, mcpVersion+": bytes of RSS of an idle session: gateway against bare SDK", got[mcpVersion], base[mcpVersion], limit)
	}
}

// idleSessions adds the memory of a session in the gateway to got, and in the bare
// server to base.
func idleSessions(t *testing.T, up, bare process, count int, got, base map[string][]int) {
	t.Helper()
	for _, p := range []process{up, bare} {
		for _, mcpVersion := range mcpVersions {
			openCrowd(t, p.url, mcpVersion, 100).leave() // to warm up
		}
	}
	time.Sleep(6 * time.Second) // let their sessions end
	empty := up.memory(t)
	crowds := make(map[string]*crowd)
	for _, mcpVersion := range mcpVersions {
		before := up.memory(t)
		crowds[mcpVersion] = openCrowd(t, up.url, mcpVersion, count)
		got[mcpVersion] = append(got[mcpVersion], (up.memory(t)-before)/count)
		before = bare.memory(t)
		openCrowd(t, bare.url, mcpVersion, count)
		base[mcpVersion] = append(base[mcpVersion], (bare.memory(t)-before)/count)
	}
	for _, mcpVersion := range mcpVersions {
		if _, _, err := openStream(t.Context(), plainClient(), up.url, mcpVersion); !errors.Is(err, errStatus(http.StatusServiceUnavailable)) {
			t.Errorf("%s: one more agent than there may be: %v", mcpVersion, err)
		}
	}
	full := up.memory(t)

	if out, err := exec.Command("ferrule", "release", "robot", "--data", up.data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	gone := time.Now()
	for _, mcpVersion := range mcpVersions {
		t.Logf("%s: the last of %d streams was notified %v after a device had gone", mcpVersion, count, crowds[mcpVersion].told(t).Sub(gone).Round(time.Millisecond))
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
	for _, mcpVersion := range mcpVersions {
		if _, _, err := openStream(t.Context(), plainClient(), up.url, mcpVersion); err != nil {
			t.Errorf("%s: an agent when the others have gone: %v", mcpVersion, err)
		}
	}
}

// crowd is many agents with open streams.
type crowd struct {
	heard  chan time.Time // when each was notified of a change
	agents []*plainAgent
	count  int
	cancel context.CancelFunc
	client *http.Client
	wg     sync.WaitGroup

	ended   atomic.Int64   // streams
	changes atomic.Int64   // notifications that all of them got
	latest  []atomic.Int64 // when each was notified last, in Unix nanoseconds
}

func plainClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
}

// openStream starts a session with an open stream.
func openStream(ctx context.Context, client *http.Client, url string, mcpVersion string) (*plainAgent, *bufio.Scanner, error) {
	a, err := newPlainAgent(ctx, client, url, mcpVersion)
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
func openCrowd(t *testing.T, url string, mcpVersion string, count int) *crowd {
	t.Helper()
	return openCrowdBy(t, plainClient(), url, mcpVersion, count)
}

func openCrowdBy(t *testing.T, client *http.Client, url string, mcpVersion string, count int) *crowd {
	t.Helper()
	c := &crowd{heard: make(chan time.Time, count), count: count, client: client, latest: make([]atomic.Int64, count)}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	t.Cleanup(c.leave)
	failed := make(chan error, count)
	var opening sync.WaitGroup
	var mu sync.Mutex // guards c.agents
	seats := make(chan struct{}, 16)
	for i := range count {
		opening.Add(1)
		seats <- struct{}{}
		c.wg.Go(func() {
			a, lines, err := openStream(ctx, c.client, url, mcpVersion)
			mu.Lock()
			c.agents = append(c.agents, a)
			mu.Unlock()
			<-seats
			opening.Done()
			if err != nil {
				failed <- err
				return
			}
			for first := true; lines.Scan(); {
				if !strings.Contains(lines.Text(), "notifications/tools/list_changed") {
					continue
				}
				now := time.Now()
				c.changes.Add(1)
				c.latest[i].Store(now.UnixNano())
				if first {
					first = false
					c.heard <- now
				}
			}
			c.ended.Add(1)
		})
	}
	opening.Wait()
	select {
	case err := <-failed:
		t.Fatalf("%s: %d agents could not be connected, %v", mcpVersion, len(failed)+1, err)
	default:
	}
	return c
}

// told waits until all agents are notified, and returns the time of the last.
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
			t.Fatalf("only %d of %d were notified", i, c.count)
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
