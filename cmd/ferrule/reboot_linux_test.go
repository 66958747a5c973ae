package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// gate is a turnstile that is rebooted.
type gate struct {
	t          *testing.T
	mcpVersion string
	file       string
	// address is where it listens. A listener outlives it, so that connections during a
	// boot are not refused.
	address  string
	listener *os.File
	process  *exec.Cmd
}

func newGate(t *testing.T, mcpVersion string, warm bool) *gate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	g := &gate{t: t, mcpVersion: mcpVersion, file: filepath.Join(t.TempDir(), "counted"), address: ln.Addr().String()}
	if warm {
		if g.listener, err = ln.(*net.TCPListener).File(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.listener.Close() })
	}
	t.Cleanup(func() { end(g.process) })
	return g
}

// boot kills the turnstile, if it runs, and starts a version of it.
func (g *gate) boot(version string) {
	g.t.Helper()
	end(g.process)
	g.process = exec.Command("turnstile", version, g.mcpVersion, g.file)
	if g.listener == nil {
		g.process.Args = append(g.process.Args, g.address)
	} else {
		g.process.ExtraFiles = []*os.File{g.listener}
	}
	g.process.Stderr = g.t.Output()
	g.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.process.Start(); err != nil {
		g.t.Fatal(err)
	}
}

// counted returns how often the turnstile did something for each token, over all its
// restarts.
func (g *gate) counted(what string) map[string]int {
	g.t.Helper()
	data, err := os.ReadFile(g.file)
	if err != nil {
		g.t.Fatal(err)
	}
	counts := make(map[string]int)
	for line := range strings.Lines(string(data)) {
		if did, token, _ := strings.Cut(strings.TrimSpace(line), " "); did == what {
			counts[token]++
		}
	}
	return counts
}

// TestRebootUnderLoad kills a device that is an MCP server while agents call it, and
// starts it with other firmware, again and again. Agents are told that their list has
// changed, and the results agree with the count of the device. Only reads run twice.
func TestRebootUnderLoad(t *testing.T) {
	t.Parallel()
	for _, mcpVersion := range mcpVersions {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s warm=%t", mcpVersion, warm), func(t *testing.T) {
				t.Parallel()
				rebootUnderLoad(t, newGate(t, mcpVersion, warm))
			})
		}
	}
}

func rebootUnderLoad(t *testing.T, at *gate) {
	at.boot("v0")
	g := startGateway(t, nil, func(c *config.Config) {
		c.Devices.HTTP = []config.HTTPDevice{{URL: "http://" + at.address + "/mcp", Name: "gate"}}
		c.Retry.Min, c.Retry.Max = config.Interval(10*time.Millisecond), config.Interval(100*time.Millisecond)
	})
	g.online("gate")
	var agents []*testAgent
	for _, mcpVersion := range mcpVersions {
		agents = append(agents, dialAgent(t, g, mcpVersion, "/mcp"))
	}
	load := startLoad(t, agents)
	for reboot := 1; reboot <= 3; reboot++ {
		load.answered(t, 20)
		was, version := g.device("gate"), fmt.Sprint("v", reboot)
		for _, a := range agents {
			for len(a.tools) > 0 {
				<-a.tools
			}
		}
		at.boot(version)
		wait.For(t, "it is found again", func() bool {
			dev := g.device("gate")
			return dev.State == ferrule.StateOnline && dev.Kind != was.Kind && dev.Since.After(was.Since) && dev.Version == version
		})
		if err := g.accept("gate"); err != nil {
			t.Fatal(err)
		}
		for _, a := range agents {
			a.relists("gate__only_in_"+version, fmt.Sprint("gate__only_in_v", reboot-1))
		}
	}
	load.answered(t, 20)
	outcomes := load.end()
	judgeReboots(t, outcomes, at)
	told := make(map[string]int)
	for _, e := range g.outcomes("gate", "turn") {
		told[e.Call]++
	}
	for call, n := range told {
		if n != 1 {
			t.Errorf("call %s has %d outcomes in the journal", call, n)
		}
	}
}

// relists waits until an agent is notified that its list has changed, and has one tool
// and lacks another.
func (a *testAgent) relists(has, lacks string) {
	a.t.Helper()
	late := time.After(wait.Ample)
	for {
		select {
		case <-a.tools:
		case <-late:
			a.t.Fatalf("%s is not notified of a list with %s and without %s: %v", a.name, has, lacks, a.list())
		}
		if list := a.list(); slices.Contains(list, has) && !slices.Contains(list, lacks) {
			return
		}
	}
}

// load is agents that call all the time.
type load struct {
	once    sync.Once
	stop    chan struct{}
	callers sync.WaitGroup

	mu       sync.Mutex
	outcomes []outcome
	good     int
}

// startLoad lets agents call until the test ends or end is called.
func startLoad(t *testing.T, agents []*testAgent) *load {
	l := &load{stop: make(chan struct{})}
	t.Cleanup(func() { l.end() })
	for w := range 4 * len(agents) {
		a, tool := agents[w%len(agents)], "turn"
		if w/len(agents)%2 == 1 {
			tool = "look"
		}
		l.callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				l.call(a, tool, fmt.Sprintf("%s-%d-%d", tool, w, i))
			}
		})
	}
	return l
}

// call makes a call and records its outcome.
func (l *load) call(a *testAgent, tool, token string) {
	o := outcome{id: tool, token: token}
	began := time.Now()
	told, err := a.told(context.Background(), &mcp.CallToolParams{Name: "gate__" + tool, Arguments: map[string]string{"token": token}})
	o.took = time.Since(began)
	switch {
	case err != nil:
		a.t.Errorf("%s: %s %s: %v", a.name, tool, token, err)
		o.code, o.ran = ferrule.Internal, true
	case told.isError:
		o.code, o.ran = told.code, told.mayHaveRun
	}
	l.mu.Lock()
	l.outcomes = append(l.outcomes, o)
	if o.code == "" {
		l.good++
	}
	l.mu.Unlock()
	if o.code != "" {
		time.Sleep(time.Millisecond)
	}
}

// answered waits until some more calls have succeeded.
func (l *load) answered(t *testing.T, more int) {
	t.Helper()
	good := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.good
	}
	until := good() + more
	wait.For(t, "calls succeed", func() bool { return good() >= until })
}

// end ends the calls and returns their outcomes.
func (l *load) end() []outcome {
	l.once.Do(func() { close(l.stop) })
	l.callers.Wait()
	return l.outcomes
}

// judgeReboots compares outcomes with the count of the device.
func judgeReboots(t *testing.T, outcomes []outcome, at *gate) {
	t.Helper()
	turns, looks := at.counted("turn"), at.counted("look")
	codes := make(map[string]int)
	for _, o := range outcomes {
		codes[o.id+" "+string(o.code)]++
		n, most := turns[o.token], 1
		if o.id == "look" {
			n, most = looks[o.token], 2
		}
		delete(turns, o.token)
		switch {
		case n > most:
			t.Errorf("%s ran %d times", o.token, n)
		case o.code == "" && n == 0:
			t.Errorf("%s succeeded, and never ran", o.token)
		case o.code != "" && !o.ran && n != 0:
			t.Errorf("%s ran, and %s says that it did not", o.token, o.code)
		}
	}
	t.Logf("%d calls: %v", len(outcomes), codes)
	if len(turns) > 0 {
		t.Errorf("nobody made these calls: %v", turns)
	}
	if codes["turn "] == 0 || codes["look "] == 0 || len(codes) < 3 {
		t.Errorf("the reboots were not felt: %v", codes)
	}
}
