//go:build bench

package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/gateway"
)

// inFlight is how many calls are made at once.
const inFlight = 16

// callServer is a server that is measured: with the gateway, with the bare SDK, or the least
// that a server can do.
type callServer struct {
	name string
	pid  int
	one  func()      // makes a call
	many func(n int) // makes calls, some at once
}

// callCost is what calls cost, some at once.
type callCost struct{ each, cpu time.Duration }

// measure makes calls and returns the time and the processor time of the server for each.
func (s callServer) measure(t *testing.T, n int) callCost {
	t.Helper()
	cpu, start := processorTime(t, s.pid), time.Now()
	s.many(n)
	return callCost{time.Since(start) / time.Duration(n), (processorTime(t, s.pid) - cpu) / time.Duration(n)}
}

// TestRatioCalls compares calls that read through the gateway to those through a server with the
// bare SDK and to the least that a server can do: the latency of single calls, and calls a second
// and processor time with sixteen at once. All have boards of their own, and take turns.
func TestRatioCalls(t *testing.T) {
	const n = 4000
	for _, way := range []struct {
		name                       string
		start                      func(t *testing.T, command, tool, board string) callServer
		latency, throughput, least float64
	}{
		{"stdio", stdioServer, 1, 1, 5},
		{"HTTP, " + modern, httpServer, 0.85, 0.8, 3.5},
	} {
		t.Run(way.name, func(t *testing.T) {
			boards := simProcess(t, 3)
			ours := way.start(t, "ferrule", "robot__gpio_read", boards[0])
			t.Setenv("GOGC", fmt.Sprint(gateway.SmallHeapGOGC)) // the gateway sets its own, up to this
			sdk := way.start(t, "bare", "gpio_read", boards[1])
			least := way.start(t, "floor", "gpio_read", boards[2])
			all := []callServer{ours, sdk, least}
			var single [3][]time.Duration
			var each, cpu [3][]time.Duration
			for round := range rounds + 1 {
				m := medians(300, ours.one, sdk.one, least.one)
				for i := range all {
					i = (i + round) % len(all)
					used := all[i].measure(t, n)
					if round > 0 { // the first is to warm up
						single[i], each[i], cpu[i] = append(single[i], m[i]), append(each[i], used.each), append(cpu[i], used.cpu)
					}
				}
			}
			most(t, "latency of a call: the gateway against the bare SDK", single[0], single[1], way.latency)
			most(t, "time per call, sixteen at once: the gateway against the bare SDK", each[0], each[1], way.throughput)
			most(t, "processor time per call: the gateway against the least", cpu[0], cpu[2], way.least)
			for i, s := range all {
				t.Logf("%s: %v alone; sixteen at once: %d calls a second, %v of processor time each", s.name, median(single[i]), time.Second/median(each[i]), median(cpu[i]))
			}
		})
	}
}

// stdioServer starts a server on standard input and output.
func stdioServer(t *testing.T, command, tool, board string) callServer {
	t.Helper()
	args := []string{board, "mcp"}
	if command == "ferrule" {
		args = []string{"mcp", "--data", t.TempDir(), "--tcp", "robot=" + board}
	}
	cmd := exec.Command(command, args...)
	in, out := startProcess(t, cmd)
	answer := func(to string) string {
		for {
			line, err := out.ReadString('\n')
			switch {
			case err != nil || strings.Contains(line, `"error"`):
				t.Fatalf("%s: %s: %s, %v", command, to, line, err)
			case !strings.Contains(line, `"method"`): // not a notification
				return line
			}
		}
	}
	fmt.Fprintf(in, "%s\n%s\n", initialize, initialized)
	answer("initialize")
	calls := 0
	next := func() string {
		calls++
		return request(legacy, calls, "tools/call", fmt.Sprintf(`"name":%q,"arguments":{"pin":2}`, tool)) + "\n"
	}
	one := func() {
		fmt.Fprint(in, next())
		if line := answer("a call"); !strings.Contains(line, `"content"`) {
			t.Fatalf("%s: %s", command, line)
		}
	}
	many := func(n int) {
		slots := make(chan struct{}, inFlight)
		go func() {
			w := bufio.NewWriter(in)
			for range n {
				slots <- struct{}{}
				fmt.Fprint(w, next())
				w.Flush()
			}
		}()
		for range n {
			answer("a call")
			<-slots
		}
	}
	one() // the board is online
	return callServer{command, cmd.Process.Pid, one, many}
}

// httpServer starts a server on HTTP.
func httpServer(t *testing.T, command, tool, board string) callServer {
	t.Helper()
	var url string
	var pid int
	if command == "ferrule" {
		p := upProcess(t, command, board, "")
		url, pid = p.url, p.pid
	} else {
		cmd := exec.Command(command, board)
		_, out := startProcess(t, cmd)
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		url, pid = strings.TrimSpace(line), cmd.Process.Pid
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight}}
	agents := make([]*plainAgent, inFlight)
	for i := range agents {
		var err error
		if agents[i], err = newPlainAgent(t.Context(), client, url, modern); err != nil {
			t.Fatal(err)
		}
	}
	call := func(a *plainAgent) {
		if answer, err := a.call(t.Context(), tool, `{"pin":2}`); err != nil || !strings.Contains(answer, `"content"`) {
			t.Errorf("%s: %s, %v", command, answer, err)
		}
	}
	return callServer{command, pid, func() { call(agents[0]) }, func(n int) {
		var wg sync.WaitGroup
		for _, a := range agents {
			wg.Go(func() {
				for range n / inFlight {
					call(a)
				}
			})
		}
		wg.Wait()
	}}
}
