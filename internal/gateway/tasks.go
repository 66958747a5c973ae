package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/cluster/taskstore"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const (
	// goneEvery is how often the nodes of open tasks are looked for.
	goneEvery = time.Second
	// goneTime is how long a node may be away after its lease has ended, before its tasks are
	// taken from it: a node that restarts, or reconnects, ends them itself and knows more.
	goneTime = 15 * time.Second
)

// taskRecords are the tasks in the cluster, as tasks.Store. They remember what the gateway
// needs to know about tasks.
type taskRecords struct {
	store tasks.Store

	mu   sync.Mutex
	seen map[string]seenTask // by ID
}

// seenTask is what is remembered of a task.
type seenTask struct {
	status           ferrule.TaskStatus
	node, boot, call string
	created, expires time.Time
}

func newTaskRecords(store tasks.Store) *taskRecords {
	return &taskRecords{store: store, seen: make(map[string]seenTask)}
}

// Put implements tasks.Store. A result that is too large, or for which there is no space, is
// replaced by a text: that the call has ended must not be lost.
func (r *taskRecords) Put(ctx context.Context, t *ferrule.Task, revision uint64) (uint64, error) {
	now, err := r.store.Put(ctx, t, revision)
	if (errors.Is(err, taskstore.ErrTooLarge) || errors.Is(err, taskstore.ErrFull)) && t.Status.Final() {
		now, err = r.store.Put(ctx, withoutResult(t), revision)
	}
	if err == nil {
		r.note(t)
	}
	return now, storeError(err)
}

// Get implements tasks.Store.
func (r *taskRecords) Get(ctx context.Context, id string) (*ferrule.Task, uint64, error) {
	t, revision, err := r.store.Get(ctx, id)
	return t, revision, storeError(err)
}

// Delete implements tasks.Store.
func (r *taskRecords) Delete(ctx context.Context, id string) error {
	err := r.store.Delete(ctx, id)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.seen, id)
	}
	return storeError(err)
}

// Watch implements tasks.Store.
func (r *taskRecords) Watch(ctx context.Context, fn func(t *ferrule.Task, revision uint64)) error {
	return r.store.Watch(ctx, func(t *ferrule.Task, revision uint64) {
		r.note(t)
		fn(t, revision)
	})
}

// storeError returns the error that tasks.Store promises.
func storeError(err error) error {
	switch {
	case errors.Is(err, taskstore.ErrUnknown):
		return tasks.ErrUnknown
	case errors.Is(err, taskstore.ErrConflict):
		return tasks.ErrConflict
	}
	return err
}

// withoutResult returns a task that has ended with a text instead of its result.
func withoutResult(t *ferrule.Task) *ferrule.Task {
	var was struct {
		IsError bool `json:"isError"`
	}
	json.Unmarshal(t.Result, &was) // it is this program's own
	ended := *t
	ended.Result = textResult(fmt.Sprintf("The call has ended, but its result was dropped: it has %d KiB. A task can keep %d MiB, or less if all tasks together keep too much. "+
		"Check the device before you call it again.", len(t.Result)>>10, taskstore.MaxRecord>>20), was.IsError)
	return &ended
}

// textResult returns a result of tools/call.
func textResult(text string, isError bool) json.RawMessage {
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	data, err := json.Marshal(map[string]any{"content": []content{{"text", text}}, "isError": isError})
	if err != nil {
		panic(err) // not with these types
	}
	return data
}

// note remembers a task.
func (r *taskRecords) note(t *ferrule.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[t.ID] = seenTask{status: t.Status, node: t.Node, boot: t.Boot, call: t.Call, created: t.Created, expires: t.Created.Add(t.TTL)}
}

// Counts returns the number of tasks by status. It forgets those that are not kept any longer.
func (r *taskRecords) Counts() map[ferrule.TaskStatus]int {
	counts := map[ferrule.TaskStatus]int{ferrule.TaskWorking: 0, ferrule.TaskInput: 0, ferrule.TaskCompleted: 0, ferrule.TaskFailed: 0, ferrule.TaskCancelled: 0}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, t := range r.seen {
		if t.status.Final() && now.After(t.expires) {
			delete(r.seen, id)
			continue
		}
		counts[t.status]++
	}
	return counts
}

// nodes returns the nodes that have open tasks.
func (r *taskRecords) nodes() map[string]bool {
	all := make(map[string]bool)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.seen {
		if !t.status.Final() {
			all[t.node] = true
		}
	}
	return all
}

// earlier returns the calls of open tasks of other runs of a node, and when the first was
// made.
func (r *taskRecords) earlier(node, boot string) (calls map[string]bool, since time.Time) {
	calls = make(map[string]bool)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.seen {
		if t.status.Final() || t.node != node || t.boot == boot || t.call == "" {
			continue
		}
		if calls[t.call] = true; since.IsZero() || t.created.Before(since) {
			since = t.created
		}
	}
	return calls, since
}

// buildTasks builds the calls that outlive their requests.
func (g *Gateway) buildTasks() error {
	cfg, err := g.parts.Config.JournalConfig()
	if err != nil {
		return err
	}
	g.taskRecords = newTaskRecords(g.Cluster.Tasks())
	g.lost = &lostCalls{
		data: g.parts.Data, node: g.node(), boot: g.boot, records: g.taskRecords,
		whole: cfg.Sync == 0 && g.parts.Config.ClusterConfig().Alone(),
	}
	g.Tasks = tasks.New(tasks.Parts{
		Config: tasks.DefaultConfig(), Store: g.taskRecords, Node: g.node(), Boot: g.boot, Lost: g.lost.explain, Log: g.parts.Log,
		Resume: func(ctx context.Context, t *ferrule.Task, r *tasks.Running) { g.Agents.ResumeTask(ctx, t, r) },
	})
	return nil
}

// runTasks keeps tasks until ctx ends. It recovers those that nobody runs any more.
func (g *Gateway) runTasks(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if !g.parts.Config.ClusterConfig().Alone() {
		wg.Go(func() { g.findGone(ctx) })
	}
	g.Tasks.Recover()
	return g.Tasks.Run(ctx)
}

// findGone reports nodes with open tasks that are gone. While this node is cut off, it cannot
// know that.
func (g *Gateway) findGone(ctx context.Context) {
	away := make(map[string]time.Time) // since when
	ticker := time.NewTicker(goneEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if !g.Cluster.State().Working {
			clear(away)
			continue
		}
		nodes := g.taskRecords.nodes()
		delete(nodes, g.node())
		for node := range nodes {
			boot, _ := g.Cluster.Peer(node)
			since, known := away[node]
			switch {
			case boot != "":
				delete(away, node)
				g.Tasks.SetGone(node, false)
			case !known:
				away[node] = time.Now()
			case time.Since(since) >= goneTime:
				g.Tasks.SetGone(node, true)
			}
		}
	}
}
