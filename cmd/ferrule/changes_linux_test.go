package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// watcher is an agent that waits for a list to change.
type watcher struct {
	*testAgent
	prefix string // of the tools of the board that is unplugged, as it sees them
}

// graceless takes the tools of a device that is away out of the list at once.
func graceless(c *config.Config) { c.Retry.Grace = 0 }

// TestListChanges unplugs an emulated board while it is being called, and plugs in
// another: agents of each version of MCP are told, see the new lists, and know what became of
// their calls. Who looks at one device is told of that one alone.
func TestListChanges(t *testing.T) {
	dir := t.TempDir()
	board := uno.Start(t, uno.Options{Link: filepath.Join(dir, "uno")})
	other := uno.Start(t, uno.Options{Link: filepath.Join(dir, "other")})
	other.Hangup()
	steady := startSim(t, sim.Config{})
	// Measurements of steady would be notifications at its own address.
	g := startGateway(t, map[string]string{"steady": steady.Addrs()[0]}, onSerial("uno", board, 0), onSerial("other", other, 0), unmeasured, graceless)
	g.online("uno")
	g.online("steady")
	var all, atUno, atSteady []watcher
	for _, mcpVersion := range mcpVersions {
		all = append(all, watcher{dialAgent(t, g, mcpVersion, "/mcp"), "uno__"})
		atUno = append(atUno, watcher{dialAgent(t, g, mcpVersion, "/mcp/devices/uno"), ""})
		atSteady = append(atSteady, watcher{dialAgent(t, g, mcpVersion, "/mcp/devices/steady"), ""})
	}
	all = append(all, watcher{pipeAgent(t, g, legacy), "uno__"}, watcher{pipeAgent(t, g, modern), "uno__"})
	for _, a := range slices.Concat(all, atUno) {
		if !a.lists(a.prefix+"gpio_write") || !slices.Contains(a.uris(), "ferrule://devices/uno/readings/get_info") {
			t.Fatalf("%s sees %q and %q", a.name, a.list(), a.uris())
		}
	}
	quiet(t, agentsOf(all, atUno, atSteady))

	// Each agent has a call in flight: one has reached the board, the others are queued.
	all[0].mustUse("uno__gpio_read", `{"pin":13}`, nil) // nothing else is on the line then
	board.Pause(time.Minute)
	type ended struct {
		told *agentOutcome
		err  error
	}
	calls := make(chan ended, len(all))
	for _, a := range all {
		go func() {
			told, err := a.use(context.Background(), "uno__gpio_write", `{"pin":13,"value":true}`)
			calls <- ended{told, err}
		}()
	}
	wait.For(t, "the calls are in flight", func() bool { return intended(t, g, "uno", "gpio_write") == len(all) })
	wait.For(t, "one has been sent", func() bool { return board.Waiting() > 0 })

	pulled := time.Now()
	board.Hangup()
	codes := make(map[ferrule.Code]int)
	for range all {
		c := <-calls
		if c.err != nil || !c.told.isError {
			t.Fatalf("got %+v, %v", c.told, c.err)
		}
		codes[c.told.code]++
		sentence := "Nothing was sent."
		if c.told.code == ferrule.Unanswered {
			sentence = "The action may have run."
		}
		if !strings.Contains(c.told.text, sentence) || c.told.mayHaveRun != (c.told.code == ferrule.Unanswered) {
			t.Errorf("%s: %t, %s", c.told.code, c.told.mayHaveRun, c.told.text)
		}
	}
	if codes[ferrule.Unanswered] != 1 || codes[ferrule.Offline] != len(all)-1 {
		t.Errorf("the calls under way ended in %v", codes)
	}
	for _, e := range g.outcomes("uno", "gpio_write") {
		if codes[e.Code]--; e.MayHaveRun != (e.Code == ferrule.Unanswered) {
			t.Errorf("the journal has %+v", e)
		}
	}
	for code, n := range codes {
		if n != 0 {
			t.Errorf("agents got %d more outcomes %s than the journal has", n, code)
		}
	}
	var longest time.Duration
	for _, a := range slices.Concat(all, atUno) {
		longest = max(longest, a.sees(pulled, "unplugged", func() bool {
			return !a.lists(a.prefix+"gpio_") && !slices.Contains(a.uris(), "ferrule://devices/uno/readings/get_info")
		}))
	}

	quiet(t, agentsOf(all, atUno))
	plugged := time.Now()
	other.Replug()
	for _, a := range all {
		longest = max(longest, a.sees(plugged, "plugged in", func() bool {
			return a.lists("other__gpio_write") && slices.Contains(a.uris(), "ferrule://devices/other/readings/get_info")
		}))
		a.mustUse("other__gpio_write", `{"pin":13,"value":true}`, nil)
	}
	figure.AtMost(t, "an agent sees that a board was plugged in or unplugged", longest, 3*time.Second)
	other.WaitPin("B5", true)
	time.Sleep(500 * time.Millisecond) // let wrong notifications arrive
	for _, a := range slices.Concat(atUno, atSteady) {
		if len(a.tools)+len(a.resources) > 0 {
			t.Errorf("%s was notified of another device", a.name)
		}
		if strings.HasSuffix(a.name, "steady") && !a.lists("gpio_write") {
			t.Errorf("%s sees %q", a.name, a.list())
		}
	}
}

// agentsOf returns the agents of watchers.
func agentsOf(all ...[]watcher) (agents []*testAgent) {
	for _, a := range slices.Concat(all...) {
		agents = append(agents, a.testAgent)
	}
	return agents
}

// sees checks that the agent is notified and sees the change, and returns how long it
// took.
func (a watcher) sees(since time.Time, what string, so func() bool) time.Duration {
	a.t.Helper()
	told := make(map[string]time.Duration)
	for name, changes := range map[string]chan time.Time{"tools": a.tools, "resources": a.resources} {
		select {
		case at := <-changes:
			told[name] = at.Sub(since)
		case <-time.After(ample):
			a.t.Fatalf("%s is not notified that %s have changed", a.name, name)
		}
	}
	for !so() { // notified again if it was too early
		select {
		case <-a.tools:
		case <-a.resources:
		case <-time.After(ample):
			a.t.Fatalf("%s: a board was %s, and it sees %q and %q", a.name, what, a.list(), a.uris())
		}
	}
	took := time.Since(since)
	a.t.Logf("%s: a board was %s: notified of tools after %v, of resources after %v, seen after %v", a.name, what,
		told["tools"].Round(time.Millisecond), told["resources"].Round(time.Millisecond), took.Round(time.Millisecond))
	return max(told["tools"], told["resources"], took)
}
