package tasks

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Recover ends the tasks of earlier runs of this node: nobody knows whether their calls ran.
// Those with a job are followed again. It returns at once, and also concerns tasks that are
// found later. It must be called when devices can be called.
func (t *Tasks) Recover() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recovering = true
	t.recoverAll()
}

// SetGone says that a node is gone, or back. Tasks of a node that is gone are treated as those
// of an earlier run of this node.
func (t *Tasks) SetGone(node string, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !gone {
		delete(t.gone, node)
		return
	}
	t.gone[node] = true
	t.recoverAll()
}

func (t *Tasks) recoverAll() {
	for id, k := range t.known {
		t.recover(id, k)
	}
}

// recover recovers a task that nobody runs: one of an earlier run or of a node that is gone, or
// one that this run took over and could not end. It is called with mu held.
func (t *Tasks) recover(id string, k *known) {
	if k.final || !t.recovering || k.node != t.parts.Node && !t.gone[k.node] || t.running[id] != nil || t.stop.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(t.stop)
	r := &Running{tasks: t, resumed: true, cancel: cancel, waiting: make(map[string]chan ferrule.Answer)}
	t.running[id] = r
	node, boot := k.node, k.boot
	t.jobs.Go(func() {
		defer cancel(nil)
		if err := r.takeOver(ctx, id, node, boot); err != nil && ctx.Err() == nil {
			t.parts.Log.Warn("tasks: a task of an earlier run cannot be recovered", "err", err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.running[id] == r {
			delete(t.running, id)
		}
	})
}

// takeOver makes this node run a task of an earlier run. Of several nodes that try, one does.
func (r *Running) takeOver(ctx context.Context, id, node, boot string) error {
	task, revision, err := r.tasks.read(ctx, id)
	switch {
	case errors.Is(err, ErrUnknown):
		return nil
	case err != nil:
		return err
	case task.Status.Final() || task.Node != node || task.Boot != boot:
		return nil
	}
	next := *task
	next.Node, next.Boot = r.tasks.parts.Node, r.tasks.parts.Boot
	if task.Node != next.Node {
		next.Changes = false // the journal of this node knows nothing about the call
	}
	next.Questions, next.Answers = nil, nil // nobody waits for the answers
	settle(&next)
	r.mu.Lock()
	r.record = &next
	r.revision, err = r.tasks.put(ctx, &next, revision)
	r.mu.Unlock()
	if err != nil {
		if errors.Is(err, ErrConflict) {
			return nil
		}
		return err
	}
	if next.Job != nil && r.tasks.parts.Resume != nil {
		r.tasks.parts.Resume(ctx, &next, r)
		return nil
	}
	e := Lost(&next)
	if r.tasks.parts.Lost != nil {
		e = r.tasks.parts.Lost(ctx, task)
	}
	r.Complete(ctx, failedResult(e))
	return nil
}

// Lost returns the error of a task whose outcome nobody knows.
func Lost(t *ferrule.Task) *ferrule.Error {
	return ferrule.Errorf(ferrule.Unanswered, "the gateway stopped while %s of %s was running, and its outcome is not known", t.Tool, t.Device).
		WithHint("check the device before you call it again")
}

// failedResult returns an error as a result of tools/call.
func failedResult(e *ferrule.Error) json.RawMessage {
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	data, err := json.Marshal(map[string]any{"content": []text{{"text", e.Explain()}}, "isError": true, "_meta": map[string]any{"ferrule/error": e}})
	if err != nil {
		panic(err) // not with these types
	}
	return data
}
