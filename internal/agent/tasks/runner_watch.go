package tasks

import (
	"context"
	"errors"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// watcher has the IDs of tasks whose changes its Watch has not passed on yet.
type watcher struct {
	mu      sync.Mutex
	changed map[string]bool
	wake    chan struct{} // holds a value if something has changed
}

func (w *watcher) add(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[id] = true
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Watch calls fn with tasks of an owner as they are now, and after each change, until ctx ends
// or fn fails. If a task changes quickly, fn gets the last state. IDs that are unknown are left
// out.
func (t *Tasks) Watch(ctx context.Context, who ferrule.Principal, ids []string, fn func(*ferrule.Task) error) error {
	w := &watcher{changed: make(map[string]bool), wake: make(chan struct{}, 1)}
	t.mu.Lock()
	for _, id := range ids {
		if t.watchers[id] == nil {
			t.watchers[id] = make(map[*watcher]bool)
		}
		t.watchers[id][w] = true
	}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, id := range ids {
			if delete(t.watchers[id], w); len(t.watchers[id]) == 0 {
				delete(t.watchers, id)
			}
		}
	}()
	for _, id := range ids {
		w.add(id)
	}
	last := make(map[string]uint64) // revisions
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		w.mu.Lock()
		changed := w.changed
		w.changed = make(map[string]bool)
		w.mu.Unlock()
		for id := range changed {
			task, revision, err := t.get(ctx, who, id)
			switch {
			case err == nil && last[id] == revision:
				continue
			case errors.Is(err, ErrUnknown):
				continue
			case ctx.Err() != nil:
				return nil
			case err == nil:
				last[id] = revision
				err = fn(task)
			}
			if err != nil {
				return err
			}
		}
	}
}
