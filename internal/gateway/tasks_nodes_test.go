package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/taskstore"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// joinStore returns the tasks of a cluster as one node has them, over its own connection.
func joinStore(t *testing.T, cfg engine.Config, name string) *taskstore.Store {
	t.Helper()
	cfg.Node, cfg.Tenant = name, "acme"
	log := slog.New(slog.DiscardHandler)
	store, err := taskstore.New(taskstore.Options{Names: engine.Names{Tenant: cfg.Tenant, Node: name}, Secret: []byte("0123456789abcdef0123456789abcdef"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Start(cfg, t.TempDir(), log, store.Refresh)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if s, err := store.Open(ctx, e, cfg.Alone()); err == nil {
				s.Run(ctx)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		e.Close()
	})
	wait.For(t, name+" has the bucket", func() bool {
		_, _, err := store.Get(t.Context(), "NONE0000")
		return errors.Is(err, taskstore.ErrUnknown)
	})
	return store
}

// TestTaskRoundsOnNATS runs a job in 100 random rounds, with the tasks in a real NATS server
// and in real time, or in 30 with the race detector. Three nodes are alive at once. When one is killed, the others compete for
// its tasks; it may be restarted and compete too.
func TestTaskRoundsOnNATS(t *testing.T) {
	const parallel = 10 // they mostly wait
	rounds := 100
	if raceEnabled {
		rounds = 30
	}
	cfg := clustertest.OneServer(t)
	var stores []*taskstore.Store
	for i := range 3 {
		stores = append(stores, joinStore(t, cfg, fmt.Sprint("node-", i)))
	}
	var mu sync.Mutex
	outcomes := make(map[string]int)
	takenOver := 0
	var wg sync.WaitGroup
	for first := range parallel { // not t.Parallel, which has as many at a time as there are cores
		wg.Go(func() {
			for i := first; i < rounds && !t.Failed(); i += parallel {
				r := &natsRound{t: t, Rand: rand.New(rand.NewPCG(22, uint64(i))), stores: stores, name: fmt.Sprint("r", i)}
				kind := r.play()
				if t.Failed() {
					t.Logf("round %d", i)
				}
				mu.Lock()
				if outcomes[kind]++; r.deaths > 0 && kind == "result" {
					takenOver++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Log(outcomes, "results after a takeover:", takenOver)
	if outcomes["result"] == 0 || outcomes["may have run"] == 0 && !raceEnabled || takenOver == 0 {
		t.Errorf("%v, %d results after a takeover: the rounds test too little", outcomes, takenOver)
	}
}

// natsRound is one round.
type natsRound struct {
	t *testing.T
	*rand.Rand
	stores []*taskstore.Store
	name   string
	board  *jobBoard
	data   []string
	nodes  []*runningNode
	deaths int
}

func (r *natsRound) random(below time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(below)))
}

func (r *natsRound) node(i int) string { return fmt.Sprint(r.name, "-", i) }

func (r *natsRound) start(i int, plan stage) *runningNode {
	n := startNode(r.t, newProcess(plan, r.IntN(3)), r.node(i), r.data[i], r.stores[i], r.board)
	if plan == atSomeTime {
		timer := time.AfterFunc(r.random(r.board.wait+r.board.accept+r.board.work+time.Second), n.kill)
		r.t.Cleanup(func() { timer.Stop() })
	}
	return n
}

// bury ends nodes that were killed, and tells the others. It restarts some.
func (r *natsRound) bury() {
	for i, n := range r.nodes {
		if n == nil || n.alive() {
			continue
		}
		r.deaths++
		n.end()
		r.nodes[i] = nil
		var both sync.WaitGroup
		for _, other := range r.nodes {
			if other != nil {
				both.Go(func() { other.tasks.SetGone(n.name, true) }) // at the same time
			}
		}
		if r.IntN(3) == 0 {
			r.nodes[i] = r.start(i, never)
		}
		both.Wait()
	}
}

// play plays the round and returns how it ended.
func (r *natsRound) play() string {
	t := r.t
	r.board = &jobBoard{wait: max(0, r.random(600*time.Millisecond)-300*time.Millisecond), accept: r.random(300 * time.Millisecond), work: r.random(3 * time.Second)}
	plans := []stage{stages[1+r.IntN(len(stages)-1)], stages[r.IntN(len(stages))], never}
	for i := range 3 {
		r.data = append(r.data, t.TempDir())
		r.nodes = append(r.nodes, r.start(i, plans[i]))
	}
	defer func() {
		for _, n := range r.nodes {
			if n != nil {
				n.end()
			}
		}
	}()
	created, err := r.nodes[0].request("tools/call", map[string]any{"name": "uno__run", "arguments": map[string]any{}})
	id, _ := created["taskId"].(string)
	if id == "" { // it has no handle, and does not call again
		if err == nil {
			return endOf(t, r.board, created)
		}
		return "the agent has no task"
	}
	jobKnown := false
	for end := time.Now().Add(2 * wait.Ample); time.Now().Before(end); time.Sleep(20*time.Millisecond + r.random(200*time.Millisecond)) {
		if stored, _, err := r.stores[2].Get(t.Context(), id); err == nil && stored.Job != nil {
			jobKnown = true
		}
		r.bury()
		alive := slices.DeleteFunc(slices.Clone(r.nodes), func(n *runningNode) bool { return n == nil || !n.alive() })
		n := alive[r.IntN(len(alive))]
		got, err := n.request("tasks/get", map[string]any{"taskId": id})
		switch {
		case errors.Is(err, errKilled) || !n.alive():
			continue
		case err != nil:
			t.Errorf("tasks/get: %v", err)
			return "error"
		case got["status"] == "completed":
			return r.ended(id, jobKnown, got)
		case got["status"] != "working":
			t.Errorf("the status is %v", got["status"])
			return "error"
		}
	}
	stored, _, err := r.stores[2].Get(t.Context(), id)
	t.Errorf("the task has not ended: %+v, %v", stored, err)
	return "error"
}

// ended checks what all nodes say about a task that has ended.
func (r *natsRound) ended(id string, jobKnown bool, got map[string]any) string {
	t := r.t
	result, _ := got["result"].(map[string]any)
	kind := endOf(t, r.board, result)
	if jobKnown && kind != "result" {
		t.Errorf("the job was known, but the outcome is %q: %v", kind, result)
	}
	for _, n := range r.nodes {
		if n == nil {
			continue
		}
		again, err := n.request("tasks/get", map[string]any{"taskId": id})
		if n.alive() && (err != nil || fmt.Sprint(again["result"]) != fmt.Sprint(result)) {
			t.Errorf("first %v, then %s says %v, %v", result, n.name, again["result"], err)
		}
	}
	if stored, _, err := r.stores[0].Get(t.Context(), id); err != nil || stored.Status != ferrule.TaskCompleted {
		t.Errorf("stored: %+v, %v", stored, err)
	}
	return kind
}
