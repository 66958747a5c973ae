package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var stallTime = flag.Duration("stall", 0, "how long TestStall tries, alone on the machine; not at all without")

// TestStall makes sixteen calls at once on standard input, as fast as they are
// answered, while the gateway collects garbage dozens of times a second; in both
// versions of MCP, in two processes. A read of standard input that waits in a system call can
// stop the whole process then, until the next timer.
//
// With os.Stdin and os.Stdout in the place of agent.Standard, and a journal that
// does not wake up every second to write, no answer came for five seconds after
// 177,000 calls: until the next timer, of a message to the board. With the journal
// as it is such a stop is over within a second, and may be too short to fail here.
// A machine that has too much else to do fails it as well: threads of the gateway
// want to run then, and do not, whereas in such a stop all of them are asleep.
func TestStall(t *testing.T) {
	if *stallTime == 0 {
		t.Skip("-stall is not set")
	}
	for _, mcpVersion := range mcpVersions {
		t.Run(mcpVersion, func(t *testing.T) {
			t.Parallel()
			stall(t, mcpVersion)
		})
	}
}

func stall(t *testing.T, mcpVersion string) {
	const most, atOnce = 500 * time.Millisecond, 16
	a := startStdioAgent(t, mcpVersion, startSim(t, simConfig()).Addrs()[0])
	wait.For(t, "the board is online", func() bool {
		return strings.Contains(a.call("gateway__status", `{}`), `"online":1`)
	})
	// Half of the calls go to the board, which has one lane.
	ask := func(i int) string {
		if i%2 == 0 {
			return a.call("gateway__status", `{}`)
		}
		return a.call("robot__gpio_read", `{"pin":2}`)
	}
	before, begin := a.collections.Load(), time.Now()
	var calls, longest atomic.Int64
	var wg sync.WaitGroup
	for i := range atOnce {
		wg.Go(func() {
			for time.Since(begin) < *stallTime && !t.Failed() {
				start := time.Now()
				if answer := ask(i); !strings.Contains(answer, `"result"`) || strings.Contains(answer, `"isError":true`) {
					t.Errorf("got %s", answer)
				}
				took := int64(time.Since(start))
				for l := longest.Load(); took > l && !longest.CompareAndSwap(l, took); l = longest.Load() {
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	took, collections := time.Since(begin), a.collections.Load()-before
	slowest := time.Duration(longest.Load())
	t.Logf("%s: %d calls on standard input, sixteen at once, during %d collections in %v; the longest took %v, at most %v",
		mcpVersion, calls.Load(), collections, took.Round(time.Second), slowest.Round(time.Millisecond), most)
	t.Logf("%s: the longest stop for a collection took %v", mcpVersion, time.Duration(a.stopped.Load()).Round(time.Millisecond))
	if slowest > most {
		t.Errorf("one took %v", slowest)
	}
	if perSecond := float64(collections) / took.Seconds(); perSecond < 10 {
		t.Errorf("only %.0f collections in a second", perSecond)
	}
}

// stdioAgent is an agent that has started a gateway.
type stdioAgent struct {
	t           *testing.T
	mcpVersion  string
	collections atomic.Int64 // of the gateway's garbage
	stopped     atomic.Int64 // longest pause

	mu      sync.Mutex
	in      io.Writer
	id      int
	waiting map[int]chan string // for an answer, by ID
}

// startStdioAgent starts `ferrule mcp` with a board called robot. It logs each garbage
// collection, about one for forty calls.
func startStdioAgent(t *testing.T, mcpVersion, board string) *stdioAgent {
	t.Helper()
	a := &stdioAgent{t: t, mcpVersion: mcpVersion, waiting: make(map[int]chan string)}
	cmd := exec.Command("ferrule", "mcp", "--data", t.TempDir(), "--tcp", "robot="+board)
	cmd.Env = append(os.Environ(), "GOGC=200", "GODEBUG=gctrace=1")
	log, said := io.Pipe()
	cmd.Stderr = said
	go a.readLog(log)
	in, out := startProcess(t, cmd)
	a.in = in
	go a.read(out)
	if mcpVersion == legacy {
		<-a.send(0, initialize)
		fmt.Fprintln(in, initialized)
	}
	return a
}

// readLog counts the garbage collections in the log.
func (a *stdioAgent) readLog(log io.Reader) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		_, times, _ := strings.Cut(lines.Text(), "%: ")
		var before, during, after float64 // in ms; the program is paused before and after
		if n, _ := fmt.Sscanf(times, "%g+%g+%g ms clock", &before, &during, &after); n == 3 {
			a.collections.Add(1)
			a.stopped.Store(max(a.stopped.Load(), int64(max(before, after)*1e6)))
		}
	}
}

// call calls a tool and returns its answer.
func (a *stdioAgent) call(tool, args string) string {
	a.mu.Lock()
	a.id++
	id := a.id
	a.mu.Unlock()
	return <-a.send(id, request(a.mcpVersion, id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, tool, args)))
}

func (a *stdioAgent) send(id int, request string) <-chan string {
	answer := make(chan string, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[id] = answer
	if _, err := io.WriteString(a.in, request+"\n"); err != nil {
		a.t.Error(err)
	}
	return answer
}

// read distributes answers. After the last one, waiting calls get none.
func (a *stdioAgent) read(out *bufio.Reader) {
	for {
		line, err := out.ReadString('\n')
		a.mu.Lock()
		if err != nil {
			for _, waits := range a.waiting {
				close(waits)
			}
			a.mu.Unlock()
			return
		}
		var answer struct{ ID *int }
		if json.Unmarshal([]byte(line), &answer) == nil && answer.ID != nil && a.waiting[*answer.ID] != nil {
			a.waiting[*answer.ID] <- line
			delete(a.waiting, *answer.ID)
		}
		a.mu.Unlock()
	}
}
