//go:build bench

package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var (
	agentCount  = flag.Int("agents", 1000, "agents in TestManyAgents")
	listChanges = flag.Int("changes", 100, "list changes in TestManyAgents")
)

// TestManyAgents connects many agents, of one version after the other, and changes the list of
// tools again and again while all of them are connected. Every agent must be told of the last
// change.
func TestManyAgents(t *testing.T) {
	const memory, patience = 48 << 10, 20 * time.Second
	addr := simProcess(t, 1)[0]
	for _, mcpVersion := range mcpVersions {
		t.Run(mcpVersion, func(t *testing.T) {
			n := *agentCount
			up := upProcess(t, "weighed", addr, fmt.Sprintf("agents: {sessions: %d, connections: %d, open_loopback: true}", n+100, 2*n+200))
			openCrowd(t, up.url, mcpVersion, 100).leave() // to warm up
			time.Sleep(time.Second)
			before := up.memory(t)
			begun := time.Now()
			c := openCrowdBy(t, fromManyHosts(), up.url, mcpVersion, n)
			took := time.Since(begun)
			each := (up.memory(t) - before) / n
			t.Logf("%s: %d agents are connected after %v, %d bytes of RSS for each, at most %d", mcpVersion, n, took.Round(time.Millisecond), each, memory)
			if each > memory {
				t.Errorf("%d bytes", each)
			}
			worked := processorTime(t, up.pid)
			begun = time.Now()
			last := comeAndGo(t, up, *listChanges)
			changing, wait := last.Sub(begun), time.Now().Add(patience)
			for c.behind(last) > 0 {
				if time.Now().After(wait) {
					t.Fatalf("%d agents were not told of the last change, %d streams have ended", c.behind(last), c.ended.Load())
				}
				time.Sleep(10 * time.Millisecond)
			}
			told := time.Since(last)
			if n := c.ended.Load(); n > 0 {
				t.Errorf("%d streams have ended", n)
			}
			worked = processorTime(t, up.pid) - worked
			t.Logf("%s: %d changes in %v, %d notifications; the last agent was told of the last change after %v, at most %v; the gateway worked %v", mcpVersion,
				*listChanges, changing.Round(time.Millisecond), c.changes.Load(), told.Round(time.Millisecond), patience, worked.Round(time.Millisecond))
			after := up.memory(t)
			t.Logf("%s: memory: %d MB without agents, %d MB with all after the changes", mcpVersion, before>>20, after>>20)
		})
	}
}

// fromManyHosts returns a client whose connections come from several addresses: the gateway
// limits those of one.
func fromManyHosts() *http.Client {
	client := plainClient()
	var number atomic.Int64
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+number.Add(1)%8))}}
		return d.DialContext(ctx, network, addr)
	}
	return client
}

// comeAndGo makes the board come and go a number of times, and returns when it began to go the last
// time. The gateway collects changes for a quarter of a second, so there is a pause after each.
func comeAndGo(t *testing.T, up process, times int) (last time.Time) {
	t.Helper()
	socket, err := control.SocketPath(up.data)
	if err != nil {
		t.Fatal(err)
	}
	client := control.NewClient(socket)
	defer client.Close()
	for i := times; i > 0; i-- {
		last = time.Now()
		in := builtin.ReleaseDeviceInput{Device: "robot", For: ferrule.Duration(i % 2 * int(time.Minute))}
		if _, err := control.CallBuiltin[builtin.ReleaseDeviceOutput](t.Context(), client, "release_device", in); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the board has come or gone", func() bool {
			time.Sleep(20 * time.Millisecond)
			resp, err := http.Get(strings.TrimSuffix(up.url, "/mcp") + "/healthz")
			if err != nil {
				return false
			}
			body, err := wholeBody(resp)
			return err == nil && strings.Contains(body, `"online":1`) == (i%2 == 0)
		})
		time.Sleep(300 * time.Millisecond)
	}
	return last
}

// behind returns how many agents were not notified since a time.
func (c *crowd) behind(since time.Time) (n int) {
	for i := range c.latest {
		if c.latest[i].Load() < since.UnixNano() {
			n++
		}
	}
	return n
}
