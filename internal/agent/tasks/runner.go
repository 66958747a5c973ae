package tasks

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config limits tasks.
type Config struct {
	// PerCaller is the limit of the tasks of one account, with those that have ended and are
	// kept. Total is the one of all tasks.
	PerCaller, Total int
	// Keep is how long a task is kept after its end.
	Keep time.Duration
	// MaxResult is the limit of a result in bytes. A larger one is not kept.
	MaxResult int
}

// DefaultConfig suits a few thousand agents.
func DefaultConfig() Config {
	return Config{PerCaller: 200, Total: 10_000, Keep: 10 * time.Minute, MaxResult: 4 << 20}
}

const (
	// storeTime limits one access to the store.
	storeTime = 5 * time.Second
	// reportEvery is how often messages of a task are stored at most.
	reportEvery = time.Second
	// sweepEvery is how often tasks are deleted that are not kept any longer.
	sweepEvery = 30 * time.Second
	// maxAbandoned is how long a task is kept that nobody runs and nobody has ended.
	maxAbandoned = 7 * 24 * time.Hour
	// maxID is the limit of an ID in bytes.
	maxID = 64
	// maxQuestions is the limit of open questions of a task.
	maxQuestions = 16
)

// ErrCancelled is why a call is cancelled whose owner asked for it.
var ErrCancelled = errors.New("cancelled by the caller")

// errTaken means that another node runs a task now: it thinks that this one is gone.
var errTaken = errors.New("another node has taken over the task")

// ErrLimit means that there are too many tasks.
var ErrLimit = errors.New("too many tasks")

// Parts is what Tasks work with.
type Parts struct {
	Config Config
	Store  Store
	// Node is this node. Boot identifies this run of its process.
	Node, Boot string
	// Resume follows the job of a task that an earlier run began, or a node that is gone, until
	// it has ended the task or ctx ends. If it is nil, such a task ends with a result that says
	// that it may have run.
	Resume func(ctx context.Context, t *ferrule.Task, r *Running)
	// Lost returns what is known about the call of a task without a job that an earlier run
	// began, or a node that is gone. If it is nil, the function Lost says that.
	Lost func(ctx context.Context, t *ferrule.Task) *ferrule.Error
	Log  *slog.Logger
}

// Tasks are the calls of this node that outlive their requests, and the way to those of other
// nodes.
type Tasks struct {
	parts Parts
	stop  context.Context // ends jobs that were resumed
	halt  context.CancelFunc
	jobs  sync.WaitGroup

	mu         sync.Mutex
	known      map[string]*known // of all nodes, by ID
	perCaller  map[ferrule.Principal]int
	running    map[string]*Running // of this node, by ID
	watchers   map[string]map[*watcher]bool
	recovering bool            // Recover was called
	gone       map[string]bool // nodes whose tasks nobody runs
}

// known is what is known about a task without reading it.
type known struct {
	revision   uint64
	account    ferrule.Principal
	node, boot string
	final      bool
	expires    time.Time
}

// New returns tasks. They are served while Run runs.
func New(p Parts) *Tasks {
	p.Config.PerCaller = cmp.Or(p.Config.PerCaller, DefaultConfig().PerCaller)
	p.Config.Total = cmp.Or(p.Config.Total, DefaultConfig().Total)
	p.Config.MaxResult = cmp.Or(p.Config.MaxResult, DefaultConfig().MaxResult)
	p.Config.Keep = cmp.Or(p.Config.Keep, DefaultConfig().Keep)
	t := &Tasks{
		parts: p, known: make(map[string]*known), perCaller: make(map[ferrule.Principal]int),
		running: make(map[string]*Running), watchers: make(map[string]map[*watcher]bool), gone: make(map[string]bool),
	}
	t.stop, t.halt = context.WithCancel(context.Background())
	return t
}

// Run follows what all nodes do to tasks, and deletes tasks that are not kept any longer,
// until ctx ends. It waits for jobs that were resumed.
func (t *Tasks) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := t.parts.Store.Watch(ctx, t.changed); err != nil && ctx.Err() == nil {
				t.parts.Log.Warn("tasks: changes of tasks are not seen", "err", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			t.sweep(ctx)
		case <-ctx.Done():
		}
	}
	wg.Wait()
	t.mu.Lock()
	t.halt() // with the lock held: nothing is resumed afterwards
	t.mu.Unlock()
	t.jobs.Wait()
	return nil
}

// Begin makes a call that runs a task. Cancel is called when its owner wants the call to end.
// The record is stored when Begin returns. The error is ErrLimit if there are too many.
func (t *Tasks) Begin(ctx context.Context, task ferrule.Task, cancel func(error)) (*Running, error) {
	now := time.Now().UTC()
	task.ID, task.Node, task.Boot = rand.Text(), t.parts.Node, t.parts.Boot
	task.Created, task.Updated, task.TTL = now, now, t.parts.Config.Keep
	task.Status = ferrule.TaskWorking
	r := &Running{tasks: t, cancel: cancel, record: &task, waiting: make(map[string]chan ferrule.Answer)}
	t.mu.Lock()
	account := task.Owner.Account()
	switch {
	case t.perCaller[account] >= t.parts.Config.PerCaller:
		t.mu.Unlock()
		return nil, fmt.Errorf("%w: limit is %d for one caller", ErrLimit, t.parts.Config.PerCaller)
	case len(t.known) >= t.parts.Config.Total:
		t.mu.Unlock()
		return nil, fmt.Errorf("%w: limit is %d", ErrLimit, t.parts.Config.Total)
	}
	t.know(&task, 0)
	t.running[task.ID] = r
	t.mu.Unlock()
	revision, err := t.put(ctx, &task, 0)
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.forget(task.ID)
		return nil, fmt.Errorf("storing a task: %w", err)
	}
	r.mu.Lock()
	r.revision = revision
	r.mu.Unlock()
	return r, nil
}

// Get returns the task of an owner, or ErrUnknown.
func (t *Tasks) Get(ctx context.Context, who ferrule.Principal, id string) (*ferrule.Task, error) {
	task, _, err := t.get(ctx, who, id)
	return task, err
}

func (t *Tasks) get(ctx context.Context, who ferrule.Principal, id string) (*ferrule.Task, uint64, error) {
	if id == "" || len(id) > maxID {
		return nil, 0, ErrUnknown
	}
	task, revision, err := t.read(ctx, id)
	switch {
	case err != nil:
		return nil, 0, err
	case !owns(who, task), task.Status.Final() && time.Now().After(task.Created.Add(task.TTL)):
		return nil, 0, ErrUnknown
	}
	return task, revision, nil
}

// owns reports whether a task belongs to a caller. What its credential permits may have
// changed since. Another token of the same name is another caller. A program that logs in
// again is the same one: it does so to ask for more scopes.
func owns(who ferrule.Principal, t *ferrule.Task) bool {
	return who.Role == t.Owner.Role && who.Name == t.Owner.Name && who.Auth == t.Owner.Auth && who.User == t.Owner.User &&
		(who.TokenID == t.Owner.TokenID || who.Auth == ferrule.AuthOAuth || who.HasConfigToken() && t.Owner.HasConfigToken())
}

// Answer answers open questions of a task. Answers to other questions are ignored.
func (t *Tasks) Answer(ctx context.Context, who ferrule.Principal, id string, answers map[string]ferrule.Answer) error {
	return t.change(ctx, who, id, func(task *ferrule.Task) bool {
		changed := false
		for key, a := range answers {
			if _, open := task.Questions[key]; !open {
				continue
			}
			delete(task.Questions, key)
			if task.Answers == nil {
				task.Answers = make(map[string]ferrule.Answer)
			}
			task.Answers[key], changed = a, true
		}
		return changed
	})
}

// Cancel asks for the end of a task. One that has ended stays as it is.
func (t *Tasks) Cancel(ctx context.Context, who ferrule.Principal, id string) error {
	return t.change(ctx, who, id, func(task *ferrule.Task) bool {
		changed := !task.Cancel
		task.Cancel = true
		return changed
	})
}

// maxConflicts is how often a change is tried.
const maxConflicts = 20

// change changes the task of an owner, which any node may run. A task that has ended is not
// changed.
func (t *Tasks) change(ctx context.Context, who ferrule.Principal, id string, fn func(*ferrule.Task) bool) error {
	for range maxConflicts {
		task, revision, err := t.get(ctx, who, id)
		if err != nil || task.Status.Final() || !fn(task) {
			return err
		}
		settle(task)
		if _, err = t.put(ctx, task, revision); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return ErrConflict
}

// settle sets what follows from other fields.
func settle(task *ferrule.Task) {
	task.Updated = time.Now().UTC()
	switch {
	case task.Status.Final():
		task.Questions, task.Answers = nil, nil
	case len(task.Questions) > 0:
		task.Status = ferrule.TaskInput
	default:
		task.Status = ferrule.TaskWorking
	}
}

// read returns a record.
func (t *Tasks) read(ctx context.Context, id string) (*ferrule.Task, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return t.parts.Store.Get(ctx, id)
}

// put writes a record, whether or not the request waits for it.
func (t *Tasks) put(ctx context.Context, task *ferrule.Task, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	revision, err := t.parts.Store.Put(ctx, task, revision)
	if err == nil {
		t.changed(task, revision)
	}
	return revision, err
}

// changed takes note of a record: of this node, or of another one. The same may come twice.
func (t *Tasks) changed(task *ferrule.Task, revision uint64) {
	t.mu.Lock()
	if k := t.known[task.ID]; k != nil && k.revision >= revision {
		t.mu.Unlock()
		return
	}
	k := t.know(task, revision)
	r := t.running[task.ID]
	if task.Status.Final() {
		delete(t.running, task.ID)
	}
	for w := range t.watchers[task.ID] {
		w.add(task.ID)
	}
	t.recover(task.ID, k)
	t.mu.Unlock()
	if r != nil {
		r.changed(task)
	}
}

// know remembers what is known about a task. It is called with mu held.
func (t *Tasks) know(task *ferrule.Task, revision uint64) *known {
	k := t.known[task.ID]
	if k == nil {
		k = &known{account: task.Owner.Account()}
		t.known[task.ID] = k
		t.perCaller[k.account]++
	}
	k.revision, k.node, k.boot = revision, task.Node, task.Boot
	k.final, k.expires = task.Status.Final(), task.Created.Add(task.TTL)
	return k
}

// forget drops what is known about a task. It is called with mu held.
func (t *Tasks) forget(id string) {
	k := t.known[id]
	if k == nil {
		return
	}
	delete(t.known, id)
	delete(t.running, id)
	if t.perCaller[k.account]--; t.perCaller[k.account] <= 0 {
		delete(t.perCaller, k.account)
	}
}

// runs reports whether this run of this node runs a task.
func (t *Tasks) runs(task *ferrule.Task) bool {
	return task.Node == t.parts.Node && task.Boot == t.parts.Boot
}

// sweep deletes tasks that are not kept any longer, and extends the time of those that run, so
// that each is kept for Keep after its end.
func (t *Tasks) sweep(ctx context.Context) {
	now := time.Now()
	var over []string
	var extend []*Running
	t.mu.Lock()
	for id, k := range t.known {
		switch {
		case t.running[id] != nil && !k.final:
			if k.expires.Sub(now) < t.parts.Config.Keep/2 {
				extend = append(extend, t.running[id])
			}
		case k.final && now.After(k.expires), now.After(k.expires.Add(maxAbandoned)):
			over = append(over, id)
		}
	}
	t.recoverAll() // what failed before
	t.mu.Unlock()
	for _, r := range extend {
		r.extend(ctx)
	}
	for _, id := range over {
		limited, cancel := context.WithTimeout(ctx, storeTime)
		err := t.parts.Store.Delete(limited, id)
		cancel()
		if err != nil && !errors.Is(err, ErrUnknown) {
			t.parts.Log.Warn("tasks: a task that is over cannot be deleted", "err", err)
			return
		}
		t.mu.Lock()
		t.forget(id)
		t.mu.Unlock()
	}
}
