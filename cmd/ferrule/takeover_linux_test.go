package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

var takeovers = flag.Int("takeovers", 3, "how often TestTakeover kills the gateway")

// mcpProcess is a `ferrule mcp` process with an agent.
type mcpProcess struct {
	t        *testing.T
	cmd      *exec.Cmd
	session  *mcp.ClientSession
	progress chan string // the messages about calls with a progress token
}

// startMCP starts `ferrule mcp` on a data directory, as a client does.
func startMCP(t *testing.T, data string, args ...string) *mcpProcess {
	t.Helper()
	cmd := exec.Command("ferrule", append([]string{"mcp", "--data", data}, args...)...)
	cmd.Stderr = os.Stderr
	progress := make(chan string, 1000)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
	})
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &mcpProcess{t, cmd, session, progress}
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

// lists reports whether a tool is in the list, or comes into it.
func (p *mcpProcess) lists(tool string) bool {
	p.t.Helper()
	for end := time.Now().Add(wait.Ample); ; time.Sleep(50 * time.Millisecond) {
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

// longestCall names the figure of tests that call after the gateway was killed, and
// maxCall is its limit.
const (
	longestCall = "a call after another process became the gateway"
	maxCall     = 5 * time.Second
)

// TestTakeover runs two `ferrule mcp` processes on one board and kills the one that is
// the gateway, again and again. The session of the other continues, and its next call
// succeeds.
func TestTakeover(t *testing.T) {
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
	for i := range *takeovers {
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
		longest = max(longest, flip(next))
		first = next
	}
	figure.AtMost(t, longestCall, longest, maxCall)
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
	var longest time.Duration
	for len(all) > 0 {
		for i, p := range all {
			longest = max(longest, p.call("uno__gpio_write", map[string]any{"pin": 13, "value": i%2 == 0}))
			board.WaitPin("B5", i%2 == 0)
		}
		all[0].kill() // it may be the gateway or not
		all = all[1:]
	}
	figure.AtMost(t, longestCall, longest, maxCall)
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
	var longest time.Duration
	use := func(p *mcpProcess, value bool) {
		t.Helper()
		for i, name := range []string{"one", "two"} {
			longest = max(longest, p.call(name+"__gpio_write", map[string]any{"pin": 13, "value": value}))
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
	figure.AtMost(t, longestCall, longest, maxCall)
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
	var longest time.Duration
	for i := range 4 {
		longest = max(longest, agent.call("uno__gpio_write", map[string]any{"pin": 13, "value": i%2 == 0}))
		board.WaitPin("B5", i%2 == 0)
	}
	figure.AtMost(t, longestCall, longest, maxCall)
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
			servo, none := startServo(t), map[string]any{}
			data, board := t.TempDir(), "servo="+servo.address
			holder := startMCP(t, data, "--tcp", board)
			holder.call("servo__look", none)
			joiner := startMCP(t, data, "--tcp", board)
			joiner.call("servo__look", none)
			type outcome struct {
				result *mcp.CallToolResult
				err    error
			}
			calls := []string{"servo__sweep", "servo__turn", "servo__look"}
			outcomes := make([]outcome, len(calls))
			var wg sync.WaitGroup
			for i, tool := range calls {
				wg.Go(func() {
					params := &mcp.CallToolParams{Name: tool, Arguments: none}
					params.SetProgressToken(tool)
					result, err := joiner.session.CallTool(t.Context(), params)
					outcomes[i] = outcome{result, err}
					if i == 0 {
						servo.release()
					}
				})
				if i == 0 {
					<-servo.sweeping
				} else if said, want := <-joiner.progress, fmt.Sprintf("waiting for servo: %d ahead", i); said != want {
					t.Errorf("%s: %s, want %s", tool, said, want)
				}
			}
			end(holder, data)
			wg.Wait()
			for i, o := range outcomes {
				if o.err != nil {
					t.Fatal(o.err)
				}
				words := o.result.Content[0].(*mcp.TextContent).Text
				if swept := i == 0; swept != o.result.IsError || swept && !strings.Contains(words, "The action may have run.") {
					t.Errorf("%s: %s", calls[i], words)
				}
			}
			if n := servo.turns.Load(); n != 1 {
				t.Errorf("turn ran %d times", n)
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
			joiner.call("servo__turn", none)
		})
	}
}

// servo is a board that sweeps until it is released.
type servo struct {
	address  string
	sweeping chan struct{}
	release  func()
	turns    atomic.Int32
}

func startServo(t *testing.T) *servo {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan struct{})
	s := &servo{address: ln.Addr().String(), sweeping: make(chan struct{}, 1), release: sync.OnceFunc(func() { close(released) })}
	board := thing.New("servo", "1.0.0")
	thing.Tool(board, "sweep", "Move back and forth", func(context.Context, struct{}) (int, error) {
		s.sweeping <- struct{}{}
		<-released
		return 0, nil
	})
	thing.Tool(board, "turn", "Turn once", func(context.Context, struct{}) (int32, error) { return s.turns.Add(1), nil })
	thing.Tool(board, "look", "Count the turns", func(context.Context, struct{}) (int32, error) { return s.turns.Load(), nil }, thing.Reads())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- board.ServeTCP(ctx, ln) }()
	t.Cleanup(func() {
		s.release()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}
