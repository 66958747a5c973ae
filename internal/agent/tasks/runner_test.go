package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var alice, bob = ferrule.Principal{Role: ferrule.Agent, Name: "alice", Auth: ferrule.AuthToken}, ferrule.Principal{Role: ferrule.Agent, Name: "bob", Auth: ferrule.AuthToken}

// start runs tasks of a node until the test ends or the returned function is called.
func start(t *testing.T, store Store, node, boot string, change ...func(*Parts)) (*Tasks, func()) {
	t.Helper()
	p := Parts{Config: DefaultConfig(), Store: store, Node: node, Boot: boot, Log: slog.New(slog.DiscardHandler)}
	for _, fn := range change {
		fn(&p)
	}
	all := New(p)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { all.Run(ctx) })
	stop := func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	synctest.Wait()
	return all, stop
}

func begin(t *testing.T, all *Tasks, cancel func(error)) *Running {
	t.Helper()
	if cancel == nil {
		cancel = func(error) {}
	}
	r, err := all.Begin(t.Context(), ferrule.Task{Owner: alice, Device: "robot", Tool: "home"}, cancel)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func status(t *testing.T, all *Tasks, id string) *ferrule.Task {
	t.Helper()
	task, err := all.Get(t.Context(), alice, id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// TestOwner: a task is known when Begin returns, on every node, and to nobody but its owner.
func TestOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory()
		here, _ := start(t, store, "a", "1")
		there, _ := start(t, store, "b", "1")
		r := begin(t, here, nil)
		for _, all := range []*Tasks{here, there} {
			if got := status(t, all, r.Task().ID); got.Status != ferrule.TaskWorking || got.Node != "a" {
				t.Errorf("got %+v", got)
			}
			for _, id := range []string{r.Task().ID, "unknown", "", strings.Repeat("x", 1000)} {
				_, err := all.Get(t.Context(), bob, id)
				if err != ErrUnknown || all.Cancel(t.Context(), bob, id) != ErrUnknown || all.Answer(t.Context(), bob, id, nil) != ErrUnknown {
					t.Errorf("%q: got %v", id, err)
				}
			}
		}
		self := alice
		self.Scopes, self.Groups = ferrule.LimitTo(ferrule.ScopeRead), "others"
		if _, err := here.Get(t.Context(), self, r.Task().ID); err != nil {
			t.Errorf("the owner with another credential: %v", err)
		}
		self.TokenID = ferrule.ConfigTokenPrefix + "1"
		if _, err := here.Get(t.Context(), self, r.Task().ID); err != ErrUnknown {
			t.Errorf("a configured token of the same name: %v", err)
		}
		self.TokenID = "another"
		if _, err := here.Get(t.Context(), self, r.Task().ID); err != ErrUnknown {
			t.Errorf("another token of the same name: %v", err)
		}
		configured, elsewhere := alice, alice
		configured.TokenID, elsewhere.TokenID = ferrule.ConfigTokenPrefix+"1", ferrule.ConfigTokenPrefix+"2"
		if !owns(elsewhere, &ferrule.Task{Owner: configured}) {
			t.Error("a configured token does not own its task on another node")
		}
	})
}

// TestReport: messages that follow each other quickly are stored once a second, and the last
// one always is.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory()
		all, _ := start(t, store, "a", "1")
		r := begin(t, all, nil)
		for i := range 1000 {
			r.Report(fmt.Sprintf("step %d\nof many", i))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		task, revision, err := store.Get(t.Context(), r.Task().ID)
		if err != nil || task.Message != "step 999 of many" || revision > 15 || revision < 8 {
			t.Errorf("%v: got %q after %d writes", err, task.Message, revision)
		}
	})
}

// TestAsk: a question is answered on another node; its key is not used a second time; what
// does not answer an open question is ignored; answers do not stay in the record.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory()
		here, _ := start(t, store, "a", "1")
		there, _ := start(t, store, "b", "1")
		r := begin(t, here, nil)
		id := r.Task().ID
		keys := make(map[string]bool)
		for round := range 3 {
			answers := make(chan string, 2)
			for range 2 {
				go func() {
					a, err := r.Ask(t.Context(), ferrule.Question{Name: "ok", Text: "Sure?"})
					answers <- fmt.Sprint(string(a.Value), err)
				}()
			}
			synctest.Wait()
			task := status(t, there, id)
			if task.Status != ferrule.TaskInput || len(task.Questions) != 2 {
				t.Fatalf("got %+v", task)
			}
			for key := range task.Questions {
				if keys[key] {
					t.Errorf("%s was used before", key)
				}
				keys[key] = true
				value := json.RawMessage(fmt.Sprint(round))
				err := there.Answer(t.Context(), alice, id, map[string]ferrule.Answer{key: {Given: true, Value: value}, "unknown": {Given: true}})
				if err != nil {
					t.Fatal(err)
				}
				if got := <-answers; got != fmt.Sprint(round, "<nil>") {
					t.Errorf("got %s", got)
				}
				there.Answer(t.Context(), alice, id, map[string]ferrule.Answer{key: {}})
			}
			synctest.Wait()
			if task := status(t, there, id); task.Status != ferrule.TaskWorking || len(task.Questions)+len(task.Answers) != 0 {
				t.Errorf("got %+v", task)
			}
		}
		// A question is withdrawn when nobody waits any longer.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.Ask(ctx, ferrule.Question{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if task := status(t, there, id); task.Status != ferrule.TaskWorking {
			t.Errorf("got %+v", task)
		}
	})
}

// TestCancel: a wish on another node reaches the call. A result that comes first stays.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory()
		here, _ := start(t, store, "a", "1")
		there, _ := start(t, store, "b", "1")
		causes := make(chan error, 10)
		r := begin(t, here, func(err error) { causes <- err })
		for range 3 {
			if err := there.Cancel(t.Context(), alice, r.Task().ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-causes; err != ErrCancelled || !r.Cancelled() {
			t.Errorf("got %v", err)
		}
		if got := status(t, there, r.Task().ID); got.Status != ferrule.TaskWorking {
			t.Errorf("got %s before the call has ended", got.Status)
		}
		r.CompleteCancelled(t.Context(), "cancelled. The action may have run.")
		r.Complete(t.Context(), json.RawMessage(`{}`))
		if got := status(t, there, r.Task().ID); got.Status != ferrule.TaskCancelled || got.Message != "cancelled. The action may have run." || got.Result != nil {
			t.Errorf("got %+v", got)
		}
		first := begin(t, here, func(err error) { causes <- err })
		first.Complete(t.Context(), json.RawMessage(`{"content":[]}`))
		if err := there.Cancel(t.Context(), alice, first.Task().ID); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := status(t, there, first.Task().ID); got.Status != ferrule.TaskCompleted || len(causes) > 0 {
			t.Errorf("got %+v and %d causes", got, len(causes))
		}
	})
}

// TestTTL: a task is kept while it runs and for ten minutes afterwards, as its TTL says, which
// never becomes less.
func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory()
		all, _ := start(t, store, "a", "1")
		r := begin(t, all, nil)
		last := r.Task().TTL
		for range 60 {
			time.Sleep(time.Minute)
			task := status(t, all, r.Task().ID)
			if task.TTL < last || task.TTL < time.Since(task.Created) {
				t.Errorf("the TTL is %v after %v, and was %v", task.TTL, time.Since(task.Created), last)
			}
			last = task.TTL
		}
		r.Complete(t.Context(), json.RawMessage(`{}`))
		if got := r.Task().TTL; got < last || got > 71*time.Minute {
			t.Errorf("got %v, and %v before", got, last)
		}
		time.Sleep(10*time.Minute - time.Second)
		status(t, all, r.Task().ID)
		time.Sleep(2 * time.Second)
		if _, err := all.Get(t.Context(), alice, r.Task().ID); err != ErrUnknown {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		if _, _, err := store.Get(t.Context(), r.Task().ID); err != ErrUnknown {
			t.Errorf("the record is still there: %v", err)
		}
	})
}

// TestLimits: the tasks of one caller do not keep others from having some, whatever the caller
// calls itself, and there is room again when they are over.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := start(t, NewMemory(), "a", "1", func(p *Parts) { p.Config.PerCaller, p.Config.Total = 3, 5 })
		var own []*Running
		for i := range 10 {
			who := alice
			who.Name += fmt.Sprintf("/name-%d", i)
			r, err := all.Begin(t.Context(), ferrule.Task{Owner: who}, func(error) {})
			if (err == nil) != (i < 3) || err != nil && !errors.Is(err, ErrLimit) {
				t.Errorf("%d: %v", i, err)
			}
			if err == nil {
				own = append(own, r)
			}
		}
		for i := range 3 {
			if _, err := all.Begin(t.Context(), ferrule.Task{Owner: bob}, func(error) {}); (err == nil) != (i < 2) {
				t.Errorf("%d: %v", i, err)
			}
		}
		own[0].Complete(t.Context(), json.RawMessage(`{}`))
		time.Sleep(11 * time.Minute)
		if _, err := all.Begin(t.Context(), ferrule.Task{Owner: alice}, func(error) {}); err != nil {
			t.Error(err)
		}
	})
}

// TestRecover: after a restart a task says that it may have run, and a job is followed to its
// end by one node. Tasks of this run are left alone.
func TestRecover(t *testing.T) {
	t.Run("restart", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testRecover(t, true) }) })
	t.Run("node gone", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testRecover(t, false) }) })
}

func testRecover(t *testing.T, restarts bool) {
	store := NewMemory()
	before, stop := start(t, store, "a", "1")
	plain, job := begin(t, before, nil), begin(t, before, nil)
	go plain.Ask(t.Context(), ferrule.Question{Name: "ok"})
	if err := job.SetJob(t.Context(), ferrule.Job{Handle: "7"}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	stop()
	var mu sync.Mutex
	resumed := make(map[string]int)
	resume := func(p *Parts) {
		p.Resume = func(ctx context.Context, task *ferrule.Task, r *Running) {
			mu.Lock()
			resumed[task.Job.Handle]++
			mu.Unlock()
			time.Sleep(time.Minute)
			r.Complete(ctx, json.RawMessage(`{"content":["done"]}`))
		}
	}
	others := []*Tasks{nil, nil}
	for i, node := range []string{"b", "c"} {
		others[i], _ = start(t, store, node, "1", resume)
	}
	other := others[0]
	after, stopAfter := other, func() {}
	if restarts {
		after, stopAfter = start(t, store, "a", "2", resume)
	}
	now := begin(t, after, nil)
	if got := status(t, after, plain.Task().ID); got.Status != ferrule.TaskInput {
		t.Errorf("got %+v before Recover", got)
	}
	for _, all := range append(others, after) {
		if !restarts {
			all.SetGone("a", true)
		}
		all.Recover()
	}
	defer stopAfter()
	synctest.Wait()
	got := status(t, other, plain.Task().ID)
	if got.Status != ferrule.TaskCompleted || !strings.Contains(string(got.Result), `"isError":true`) || !strings.Contains(string(got.Result), "The action may have run. Check the device before") {
		t.Errorf("got %s with %s", got.Status, got.Result)
	}
	if got := status(t, after, job.Task().ID); got.Status != ferrule.TaskWorking || restarts != (got.Node == "a" && got.Boot == "2") {
		t.Errorf("got %+v", got)
	}
	time.Sleep(2 * time.Minute)
	if got := status(t, after, job.Task().ID); got.Status != ferrule.TaskCompleted || string(got.Result) != `{"content":["done"]}` {
		t.Errorf("got %+v", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if resumed["7"] != 1 {
		t.Errorf("the job was followed %d times", resumed["7"])
	}
	if got := status(t, after, now.Task().ID); got.Status != ferrule.TaskWorking {
		t.Errorf("a task of this run is %s", got.Status)
	}
}

// TestWatch: a watcher sees a task as it is, and its last state, and nothing of others.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory()
		here, _ := start(t, store, "a", "1")
		there, _ := start(t, store, "b", "1")
		r := begin(t, here, nil)
		seen := make(map[ferrule.Principal][]string)
		var mu sync.Mutex
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, who := range []ferrule.Principal{alice, bob} {
			wg.Go(func() {
				there.Watch(ctx, who, []string{r.Task().ID, "unknown"}, func(task *ferrule.Task) error {
					mu.Lock()
					defer mu.Unlock()
					seen[who] = append(seen[who], fmt.Sprint(task.Status, " ", task.Message))
					return nil
				})
			})
		}
		synctest.Wait()
		r.Report("halfway")
		time.Sleep(time.Second)
		r.Complete(t.Context(), json.RawMessage(`{}`))
		synctest.Wait()
		cancel()
		wg.Wait()
		if got := fmt.Sprint(seen[alice]); got != "[working  working halfway completed ]" || len(seen[bob]) > 0 {
			t.Errorf("got %s and %v", got, seen[bob])
		}
		if len(there.watchers) != 0 {
			t.Errorf("%d watchers are left", len(there.watchers))
		}
	})
}

// failing is a store that fails for a while.
type failing struct {
	*Memory
	mu   sync.Mutex
	fail bool
}

func (f *failing) Put(ctx context.Context, t *ferrule.Task, revision uint64) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail {
		return 0, errors.New("disk full")
	}
	return f.Memory.Put(ctx, t, revision)
}

func (f *failing) set(fail bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// TestStoreFails: without a record there is no task, and an outcome is stored when the store
// works again.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Memory: NewMemory()}
		all, _ := start(t, store, "a", "1")
		store.set(true)
		if _, err := all.Begin(t.Context(), ferrule.Task{Owner: alice}, func(error) {}); err == nil || len(all.known) > 0 || len(all.perCaller) > 0 {
			t.Errorf("%v, %d known", err, len(all.known))
		}
		store.set(false)
		r := begin(t, all, nil)
		store.set(true)
		if _, err := r.Ask(t.Context(), ferrule.Question{}); err == nil {
			t.Error("a question that cannot be stored has an answer")
		}
		time.AfterFunc(time.Minute, func() { store.set(false) })
		r.Complete(t.Context(), json.RawMessage(`{}`))
		if got := status(t, all, r.Task().ID); got.Status != ferrule.TaskCompleted {
			t.Errorf("got %+v", got)
		}
	})
}

// TestLargeResult: a result that is too large is replaced by words that do not say that
// nothing ran.
func TestLargeResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := start(t, NewMemory(), "a", "1", func(p *Parts) { p.Config.MaxResult = 100 })
		r := begin(t, all, nil)
		r.Complete(t.Context(), json.RawMessage(`"`+strings.Repeat("x", 100)+`"`))
		if got := string(status(t, all, r.Task().ID).Result); !strings.Contains(got, "limit is 100 bytes, got 102") || !strings.Contains(got, `"may_have_run":true`) {
			t.Errorf("got %s", got)
		}
	})
}
