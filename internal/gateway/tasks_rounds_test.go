package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// The rounds: a board runs one job of up to ten minutes by itself. Meanwhile agents, gateways
// and nodes are killed at random moments. The board and the store of tasks survive. A kill is
// exact: from that moment on, nothing of the killed process reaches the journal, the store, the
// board or the agent.

// errKilled is what a killed process gets, if it still runs.
var errKilled = errors.New("killed")

// stage is a moment at which a process is killed.
type stage string

// The stages.
const (
	never        stage = "never"
	beforeIntent stage = "before the intent is in the journal"
	afterIntent  stage = "after the intent is in the journal"
	beforeStart  stage = "before the board gets the call"
	afterStart   stage = "after the board has begun"
	beforeRecord stage = "before a record is stored"
	afterRecord  stage = "after a record is stored"
	whilePolling stage = "when the board is asked for the outcome"
	afterPolling stage = "after the board has told the outcome"
	atSomeTime   stage = "at a random time"
)

var stages = []stage{never, beforeIntent, afterIntent, beforeStart, afterStart, beforeRecord, afterRecord, whilePolling, afterPolling, atSomeTime}

// process is one run of a gateway, which may be killed.
type process struct {
	plan  stage
	count int // how many times the stage is passed before

	mu     sync.Mutex
	killed chan struct{}
}

func newProcess(plan stage, count int) *process {
	return &process{plan: plan, count: count, killed: make(chan struct{})}
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		close(p.killed)
	}
}

func (p *process) alive() bool {
	select {
	case <-p.killed:
		return false
	default:
		return true
	}
}

// pass passes a stage, unless the process is killed there or before.
func (p *process) pass(s stage) error {
	p.mu.Lock()
	if p.alive() && s == p.plan {
		if p.count--; p.count < 0 {
			close(p.killed)
		}
	}
	p.mu.Unlock()
	if !p.alive() {
		return errKilled
	}
	return nil
}

// killableStore is a store as one process sees it.
type killableStore struct {
	tasks.Store
	p *process
}

func (s killableStore) Put(ctx context.Context, t *ferrule.Task, revision uint64) (uint64, error) {
	if err := s.p.pass(beforeRecord); err != nil {
		return 0, err
	}
	revision, err := s.Store.Put(ctx, t, revision)
	return revision, errors.Join(err, s.p.pass(afterRecord))
}

func (s killableStore) Get(ctx context.Context, id string) (*ferrule.Task, uint64, error) {
	if !s.p.alive() {
		return nil, 0, errKilled
	}
	return s.Store.Get(ctx, id)
}

func (s killableStore) Delete(ctx context.Context, id string) error {
	if !s.p.alive() {
		return errKilled
	}
	return s.Store.Delete(ctx, id)
}

// killableJournal is a journal as one process sees it.
type killableJournal struct {
	*journal.Journal
	p *process
}

func (j killableJournal) Append(e ferrule.Entry, durable bool) error {
	if e.Phase == ferrule.Intent {
		if err := j.p.pass(beforeIntent); err != nil {
			return err
		}
	}
	if !j.p.alive() {
		return errKilled
	}
	if err := j.Journal.Append(e, durable); err != nil {
		return err
	}
	if e.Phase == ferrule.Intent {
		return j.p.pass(afterIntent)
	}
	return nil
}

// jobBoard is a board that runs one job by itself.
type jobBoard struct {
	// wait is how long a call waits before it is sent, for example for a person.
	wait, accept, work time.Duration

	mu     sync.Mutex
	starts int
	ends   time.Time
}

const jobHandle = "job-1"

// policy permits all, after a while.
func (b *jobBoard) policy(*ferrule.Call) ferrule.Verdict {
	time.Sleep(b.wait)
	return ferrule.Verdict{Ruling: ferrule.Permit}
}

// handler returns the way of one process to the board.
func (b *jobBoard) handler(p *process) ferrule.Handler {
	return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Operation == ferrule.PollJob {
			return b.poll(p, call)
		}
		if err := p.pass(beforeStart); err != nil {
			return nil, err
		}
		b.mu.Lock()
		b.starts++
		b.ends = time.Now().Add(b.accept + b.work)
		b.mu.Unlock()
		if err := p.pass(afterStart); err != nil {
			return nil, err
		}
		time.Sleep(b.accept)
		if !p.alive() {
			return nil, errKilled
		}
		return &ferrule.Result{Job: &ferrule.Job{Handle: jobHandle, Began: time.Now(), Message: "busy"}}, nil
	}
}

func (b *jobBoard) poll(p *process, call *ferrule.Call) (*ferrule.Result, error) {
	if err := p.pass(whilePolling); err != nil {
		return nil, err
	}
	b.mu.Lock()
	starts, left := b.starts, time.Until(b.ends)
	b.mu.Unlock()
	switch {
	case starts == 0 || call.Job.Handle != jobHandle:
		return nil, ferrule.Errorf(ferrule.NotFound, "no such job").EndsJob()
	case left > 0:
		return &ferrule.Result{Job: &ferrule.Job{Handle: jobHandle, Message: fmt.Sprintf("%v left", left.Round(time.Minute))}}, nil
	}
	if err := p.pass(afterPolling); err != nil {
		return nil, err
	}
	return &ferrule.Result{Value: json.RawMessage(`{"ran":` + strconv.Itoa(starts) + `}`)}, nil
}

// runningNode is one process of a node: tasks, agents and pipeline as the gateway connects
// them.
type runningNode struct {
	*process
	name   string
	tasks  *tasks.Tasks
	agents *server.Server
	fleet  *fleet.Fleet
	end    func()
}

var boots atomic.Uint64

// startNode starts a process of the node that holds the board.
func startNode(t *testing.T, p *process, name, data string, store tasks.Store, board *jobBoard) *runningNode {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	file, err := journal.Open(data, journal.DefaultConfig(), log)
	if err != nil {
		t.Fatal(err)
	}
	n := &runningNode{process: p, name: name, fleet: fleet.New(nil)}
	menu := catalog.New(catalog.DefaultConfig())
	n.fleet.WatchDevices(menu)
	n.attach(board)
	pipe := pipeline.New(pipeline.Parts{Config: pipeline.DefaultConfig(), Journal: killableJournal{file, p}, Fleet: n.fleet, Log: log, Policy: board.policy})
	boot := fmt.Sprint("boot-", boots.Add(1))
	records := newTaskRecords(killableStore{store, p})
	lost := &lostCalls{data: data, node: name, boot: boot, records: records, whole: true}
	n.tasks = tasks.New(tasks.Parts{
		Config: tasks.DefaultConfig(), Store: records, Node: name, Boot: boot, Lost: lost.explain, Log: log,
		Resume: func(ctx context.Context, t *ferrule.Task, r *tasks.Running) { n.agents.ResumeTask(ctx, t, r) },
	})
	n.agents = server.New(server.Parts{Config: server.DefaultConfig(), Catalog: menu, Handle: pipe.Handle, Tasks: n.tasks, Version: "1", Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { n.tasks.Run(ctx) })
	wg.Go(func() { n.agents.Run(ctx) })
	n.tasks.Recover()
	n.end = sync.OnceFunc(func() {
		n.kill() // what follows has no effect
		cancel()
		wg.Wait()
		pipe.Flush()
		file.Close()
	})
	return n
}

// attach connects the board to the node.
func (n *runningNode) attach(board *jobBoard) {
	n.fleet.Put(&ferrule.Device{ID: "uno", Kind: "k", Model: "uno", Node: n.name, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		&ferrule.Manifest{Model: "uno", Tools: []ferrule.Tool{{Name: "run", Text: "Run the job.", Effect: ferrule.Changes, Task: ferrule.TaskSlow}}},
		board.handler(n.process))
}

// request sends one request of the agent and returns the result. It fails if the process is
// killed before it has answered.
func (n *runningNode) request(method string, params map[string]any) (map[string]any, error) {
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "rounds", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}},
	}
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		n.agents.Serve(ctx, ferrule.Principal{Role: ferrule.Agent, Name: "rounds"}, 0, in, out)
		out.Close()
	}()
	answers := make(chan []byte, 1)
	go func() {
		toServer.Write(append(line, '\n'))
		scanner := bufio.NewScanner(fromServer)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			if strings.Contains(scanner.Text(), `"id":1`) {
				answers <- []byte(strings.Clone(scanner.Text()))
				break
			}
		}
		io.Copy(io.Discard, fromServer)
	}()
	defer func() {
		cancel()
		toServer.Close()
		in.Close()
		<-served
		fromServer.Close()
	}()
	select {
	case answer := <-answers:
		if !n.alive() {
			return nil, errKilled
		}
		var message struct {
			Result map[string]any
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(answer, &message); err != nil {
			return nil, err
		}
		if message.Error != nil {
			return nil, errors.New(message.Error.Message)
		}
		return message.Result, nil
	case <-n.killed:
		return nil, errKilled
	}
}

// TestTaskRounds runs a job in 1,000 random rounds. It starts at most once, its outcome is
// reported once, no task is lost, and nothing that ran is reported as not run. With the race
// detector there are fewer rounds; .ci/run plays all of them without it.
func TestTaskRounds(t *testing.T) {
	rounds, seed := 1000, uint64(22)
	if raceEnabled {
		rounds = 100
	}
	if text := os.Getenv("FERRULE_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	const parallel = 8 // they mostly wait for the disk
	var mu sync.Mutex
	outcomes := make(map[string]int)
	t.Run("rounds", func(t *testing.T) {
		for first := range parallel {
			t.Run(strconv.Itoa(first), func(t *testing.T) {
				t.Parallel()
				for i := first; i < rounds && !t.Failed(); i += parallel {
					synctest.Test(t, func(t *testing.T) {
						kind := playRound(t, rand.New(rand.NewPCG(seed, uint64(i))))
						if t.Failed() {
							t.Logf("round %d of seed %d", i, seed)
						}
						mu.Lock()
						defer mu.Unlock()
						outcomes[kind]++
					})
				}
			})
		}
	})
	t.Log(outcomes)
	for _, kind := range []string{"result", "may have run", "nothing was sent", "the agent has no task"} {
		if outcomes[kind] == 0 && !raceEnabled {
			t.Errorf("no round ended with %q", kind)
		}
	}
}

// playRound plays one round and returns how it ended.
func playRound(t *testing.T, r *rand.Rand) string {
	store := tasks.NewMemory()
	board := &jobBoard{wait: time.Duration(max(0, r.IntN(6000)-3000)) * time.Millisecond, accept: time.Duration(r.IntN(3000)) * time.Millisecond, work: time.Duration(r.IntN(600_000)) * time.Millisecond}
	other := map[string]string{"a": "b", "b": "a"}
	data := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	plans := []stage{stages[r.IntN(len(stages))], stages[r.IntN(len(stages))], stages[r.IntN(len(stages))], never}
	start := func(name string) *runningNode {
		plan := never
		if len(plans) > 0 {
			plan, plans = plans[0], plans[1:]
		}
		n := startNode(t, newProcess(plan, r.IntN(4)), name, data[name], store, board)
		n.tasks.SetGone(other[name], true) // one process runs at a time
		if plan == atSomeTime {
			after := time.Duration(r.Int64N(int64(board.wait + board.accept + board.work + 5*time.Second)))
			go func() {
				select {
				case <-time.After(after):
					n.kill()
				case <-n.killed:
				}
			}()
		}
		return n
	}
	n := start("a")
	defer func() { n.end() }()
	created, err := n.request("tools/call", map[string]any{"name": "uno__run", "arguments": map[string]any{}})
	id, _ := created["taskId"].(string)
	if id == "" { // it has no handle, and does not call again
		n.end()
		if board.starts > 1 {
			t.Errorf("started %d times", board.starts)
		}
		if err == nil {
			return endOf(t, board, created)
		}
		return "the agent has no task"
	}
	jobKnown := false
	for end := time.Now().Add(time.Hour); ; {
		if stored, _, err := store.Get(t.Context(), id); err == nil && stored.Job != nil {
			jobKnown = true
		}
		if !n.alive() { // restart it, or move the board to the other node
			dead := n.name
			n.end()
			name := dead
			if r.IntN(2) == 0 {
				name = other[dead]
			}
			time.Sleep(time.Duration(r.IntN(120)) * time.Second)
			n = start(name)
		}
		got, err := n.request("tasks/get", map[string]any{"taskId": id})
		switch {
		case errors.Is(err, errKilled) || !n.alive():
			continue
		case err != nil:
			t.Errorf("tasks/get: %v", err)
			return "error"
		case got["status"] == "completed":
			result, _ := got["result"].(map[string]any)
			kind := endOf(t, board, result)
			if jobKnown && kind != "result" {
				t.Errorf("the job was known, but the outcome is %q: %v", kind, result)
			}
			time.Sleep(time.Minute) // nothing follows
			again, err := n.request("tasks/get", map[string]any{"taskId": id})
			if n.alive() && (err != nil || fmt.Sprint(again["result"]) != fmt.Sprint(result)) {
				t.Errorf("first %v, then %v, %v", result, again["result"], err)
			}
			return kind
		case got["status"] != "working":
			t.Errorf("the status is %v", got["status"])
			return "error"
		case time.Now().After(end):
			t.Errorf("not ended after an hour: %v", got)
			return "error"
		}
		time.Sleep(time.Duration(500+r.IntN(20_000)) * time.Millisecond)
	}
}

// endOf returns how a round ended, and checks what the agent was told.
func endOf(t *testing.T, board *jobBoard, result map[string]any) string {
	t.Helper()
	board.mu.Lock()
	starts, over := board.starts, !time.Now().Before(board.ends)
	board.mu.Unlock()
	if starts > 1 {
		t.Errorf("started %d times", starts)
	}
	text := fmt.Sprint(result)
	failed, _ := result["isError"].(bool)
	switch {
	case !failed:
		if starts != 1 || !over {
			t.Errorf("started %d times, over: %t, but the agent was told %s", starts, over, text)
		}
		return "result"
	case strings.Contains(text, "Nothing was sent"):
		if starts != 0 {
			t.Errorf("started %d times, but the agent was told %s", starts, text)
		}
		return "nothing was sent"
	case strings.Contains(text, "may have run"):
		return "may have run"
	}
	t.Errorf("the agent was told %s", text)
	return "error"
}
