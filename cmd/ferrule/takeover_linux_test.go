package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// mcpProcess is a `ferrule mcp` process with an agent.
type mcpProcess struct {
	t       *testing.T
	cmd     *exec.Cmd
	session *mcp.ClientSession
}

// startMCP starts `ferrule mcp` on a data directory, as a client does.
func startMCP(t *testing.T, data string, args ...string) *mcpProcess {
	t.Helper()
	cmd := exec.Command("ferrule", append([]string{"mcp", "--data", data}, args...)...)
	cmd.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &mcpProcess{t, cmd, session}
	t.Cleanup(func() {
		session.Close()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(data, datadir.LogFile))
			t.Logf("%s", log)
		}
	})
	return p
}

// kill kills the process and waits until it has ended.
func (p *mcpProcess) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd.Process.Wait()
}

// lists reports whether a tool is in the list, or soon will be.
func (p *mcpProcess) lists(tool string) bool {
	p.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		list, err := p.session.ListTools(p.t.Context(), nil)
		if err != nil {
			p.t.Fatal(err)
		}
		listed := slices.ContainsFunc(list.Tools, func(t *mcp.Tool) bool { return t.Name == tool })
		if listed || time.Now().After(end) {
			return listed
		}
	}
}

// call makes a call that must succeed, and returns how long it took.
func (p *mcpProcess) call(tool string, args map[string]any) time.Duration {
	p.t.Helper()
	start := time.Now()
	result, err := p.session.CallTool(p.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		p.t.Fatal(err)
	}
	if result.IsError {
		p.t.Fatalf("%s: %s", tool, result.Content[0].(*mcp.TextContent).Text)
	}
	return time.Since(start)
}

// TestTakeover runs two `ferrule mcp` processes on one board and kills the one that is
// the gateway, twenty times. The session of the other continues, and its next call
// succeeds.
func TestTakeover(t *testing.T) {
	const times = 20
	board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
	data, port := t.TempDir(), "uno="+board.Path()
	first := startMCP(t, data, "--serial", port)
	var longest time.Duration
	on := false
	flip := func(p *mcpProcess) time.Duration {
		on = !on
		took := p.call("uno__gpio_write", map[string]any{"pin": 13, "value": on})
		board.WaitPin("B5", on)
		return took
	}
	for i := range times {
		if !first.lists("uno__gpio_write") {
			t.Fatalf("round %d: the first lists no tool of the board", i)
		}
		next := startMCP(t, data, "--serial", port)
		if !next.lists("uno__gpio_write") {
			t.Fatalf("round %d: the second lists no tool of the board", i)
		}
		flip(first)
		flip(next)
		first.kill()
		took := flip(next)
		longest = max(longest, took)
		if took > 5*time.Second {
			t.Errorf("round %d: the next call took %v", i, took)
		}
		first = next
	}
	t.Logf("%d times: the longest call after the holder was killed took %v, at most 5s", times, longest.Round(time.Millisecond))
}

// TestStartedTogether starts four processes at the same instant. One becomes the gateway
// and all can use the board; when it is killed, the other three can, and so on.
func TestStartedTogether(t *testing.T) {
	board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
	data := t.TempDir()
	all := make([]*mcpProcess, 4)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = startMCP(t, data, "--serial", "uno="+board.Path()) })
	}
	wg.Wait()
	for len(all) > 0 {
		for i, p := range all {
			if took := p.call("uno__gpio_write", map[string]any{"pin": 13, "value": i%2 == 0}); took > 5*time.Second {
				t.Errorf("a call took %v", took)
			}
			board.WaitPin("B5", i%2 == 0)
		}
		all[0].kill() // it may be the gateway or not
		all = all[1:]
	}
}

// TestJoinerAddsBoard checks that a process that joins can add a board, which stays when
// that process or the gateway ends.
func TestJoinerAddsBoard(t *testing.T) {
	boards := []*uno.Board{
		uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "one")}),
		uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "two")}),
	}
	data := t.TempDir()
	holder := startMCP(t, data, "--serial", "one="+boards[0].Path())
	if !holder.lists("one__gpio_write") {
		t.Fatal("the holder lists no tool of its board")
	}
	joiner := startMCP(t, data, "--serial", "two="+boards[1].Path())
	third := startMCP(t, data)
	use := func(p *mcpProcess, value bool) {
		t.Helper()
		for i, name := range []string{"one", "two"} {
			if took := p.call(name+"__gpio_write", map[string]any{"pin": 13, "value": value}); took > 5*time.Second {
				t.Errorf("%s: a call took %v", name, took)
			}
			boards[i].WaitPin("B5", value)
		}
	}
	if !joiner.lists("one__gpio_write") || !joiner.lists("two__gpio_write") {
		t.Error("the joiner does not list both")
	}
	use(joiner, true)
	use(holder, false)
	use(third, true)
	holder.kill()
	use(third, false)
	use(joiner, true)
	joiner.kill()
	use(third, false)
	out, err := exec.Command("ferrule", "devices", "--data", data).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestUpTakesOver checks that `ferrule up` takes over from a `ferrule mcp` process,
// whose agent notices nothing, and that a second `ferrule up` does not start.
func TestUpTakesOver(t *testing.T) {
	board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
	data := t.TempDir()
	agent := startMCP(t, data, "--serial", "uno="+board.Path())
	agent.call("uno__gpio_write", map[string]any{"pin": 13, "value": true})
	up := exec.Command("ferrule", "up", "--data", data, "--listen", "127.0.0.1:0")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		up.Process.Signal(os.Interrupt)
		up.Wait()
	})
	wait.For(t, "ferrule up is the gateway", func() bool {
		log, _ := os.ReadFile(filepath.Join(data, datadir.LogFile))
		return strings.Contains(string(log), "joined the running gateway")
	})
	for i := range 4 {
		if took := agent.call("uno__gpio_write", map[string]any{"pin": 13, "value": i%2 == 0}); took > 5*time.Second {
			t.Errorf("a call took %v", took)
		}
		board.WaitPin("B5", i%2 == 0)
	}
	out, err := exec.Command("ferrule", "up", "--data", data, "--listen", "127.0.0.1:0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a gateway is already running") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestHandover ends a gateway while an agent of another process has one call in flight
// and two in the queue: because its own agent leaves, or because `ferrule up` takes
// over. Calls that were not sent are made by the next gateway, others report that they
// may have run, and the journal has an outcome for every intent.
func TestHandover(t *testing.T) {
	for name, end := range map[string]func(holder *mcpProcess, data string){
		"its agent leaves": func(holder *mcpProcess, _ string) { holder.session.Close() },
		"ferrule up": func(_ *mcpProcess, data string) {
			up := exec.Command("ferrule", "up", "--data", data, "--listen", "127.0.0.1:0")
			if err := up.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				up.Process.Signal(os.Interrupt)
				up.Wait()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := startSim(t, simConfig())
			data, board := t.TempDir(), "robot="+fleet.Addrs()[0]
			holder := startMCP(t, data, "--tcp", board)
			holder.call("robot__gpio_write", map[string]any{"pin": 2, "value": false})
			joiner := startMCP(t, data, "--tcp", board)
			joiner.call("robot__gpio_read", map[string]any{"pin": 2})
			type outcome struct {
				result *mcp.CallToolResult
				err    error
			}
			calls := []struct {
				tool string
				args map[string]any
			}{
				{"robot__sweep", map[string]any{"milliseconds": 5000}}, // longer than a program takes to start
				{"robot__pulse", map[string]any{"token": "once"}},
				{"robot__gpio_read", map[string]any{"pin": 2}},
			}
			outcomes := make([]outcome, len(calls))
			var wg sync.WaitGroup
			for i, c := range calls {
				wg.Go(func() {
					result, err := joiner.session.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
					outcomes[i] = outcome{result, err}
				})
				time.Sleep(150 * time.Millisecond)
			}
			end(holder, data)
			wg.Wait()
			for i, o := range outcomes {
				if o.err != nil {
					t.Fatal(o.err)
				}
				words := o.result.Content[0].(*mcp.TextContent).Text
				if swept := i == 0; swept != o.result.IsError || swept && !strings.Contains(words, "The action may have run.") {
					t.Errorf("%s: %s", calls[i].tool, words)
				}
			}
			if runs := fleet.Boards[0].Runs()["once"]; runs != 1 {
				t.Errorf("pulse ran %d times", runs)
			}
			out, err := exec.Command("ferrule", "audit", "--json", "--all", "--data", data).Output()
			if err != nil {
				t.Fatal(err)
			}
			open := make(map[string]bool)
			for line := range strings.Lines(string(out)) {
				var e ferrule.Entry
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				switch e.Phase {
				case ferrule.Intent:
					open[e.Call] = true
				case ferrule.Outcome:
					delete(open, e.Call)
				}
			}
			if len(open) > 0 {
				t.Errorf("intents without an outcome: %v", open)
			}
			joiner.call("robot__gpio_write", map[string]any{"pin": 2, "value": true})
		})
	}
}
