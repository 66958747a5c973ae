package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Running is a task that this node runs.
type Running struct {
	tasks  *Tasks
	cancel func(error)
	// resumed is set if the call was made by an earlier run, or by another node.
	resumed bool

	mu       sync.Mutex // held while the record is written
	record   *ferrule.Task
	revision uint64

	state     sync.Mutex
	waiting   map[string]chan ferrule.Answer // each holds one
	cancelled bool
	message   string // the last one, which may not be stored yet
	timer     *time.Timer
	reported  time.Time
}

// Task returns the record. It must not be changed.
func (r *Running) Task() *ferrule.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// Cancelled reports whether the owner wants the call to end.
func (r *Running) Cancelled() bool {
	r.state.Lock()
	defer r.state.Unlock()
	return r.cancelled
}

// Report says what the task is doing. It does not block. Of messages that follow each other
// quickly, the last one is stored.
func (r *Running) Report(message string) {
	message = ferrule.OneLine(ferrule.Clean(message, ferrule.MaxText), ferrule.MaxText)
	r.state.Lock()
	defer r.state.Unlock()
	if message == "" || message == r.message {
		return
	}
	r.message = message
	if r.timer == nil {
		r.timer = time.AfterFunc(max(0, time.Until(r.reported.Add(reportEvery))), r.flush)
	}
}

// flush stores the last message.
func (r *Running) flush() {
	r.state.Lock()
	r.timer, r.reported = nil, time.Now()
	message := r.message
	r.state.Unlock()
	r.update(context.Background(), func(t *ferrule.Task) bool { // a message that is lost is replaced by the next
		changed := t.Message != message
		t.Message = message
		return changed
	})
}

// SetJob stores the job that the device runs by itself: after a restart it is followed again.
func (r *Running) SetJob(ctx context.Context, job ferrule.Job) error {
	return r.update(ctx, func(t *ferrule.Task) bool {
		t.Job = &job
		return true
	})
}

// Ask asks the owner a question, and waits for the answer, which may come from any node.
func (r *Running) Ask(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
	if len(r.Task().Questions) >= maxQuestions {
		return ferrule.Answer{}, fmt.Errorf("too many open questions: limit is %d", maxQuestions)
	}
	answer := make(chan ferrule.Answer, 1)
	var key string
	err := r.update(ctx, func(t *ferrule.Task) bool {
		t.Asked++
		key = fmt.Sprintf("%s-%d", cmp.Or(ferrule.Clean(q.Name, ferrule.MaxWord), "question"), t.Asked)
		t.Questions = maps.Clone(t.Questions)
		if t.Questions == nil {
			t.Questions = make(map[string]ferrule.Question)
		}
		t.Questions[key] = q
		r.state.Lock()
		defer r.state.Unlock()
		r.waiting[key] = answer
		return true
	})
	defer func() {
		r.state.Lock()
		delete(r.waiting, key)
		r.state.Unlock()
		r.update(context.WithoutCancel(ctx), func(t *ferrule.Task) bool { // the end of the task removes it too
			_, open := t.Questions[key]
			_, answered := t.Answers[key]
			t.Questions, t.Answers = maps.Clone(t.Questions), maps.Clone(t.Answers)
			delete(t.Questions, key)
			delete(t.Answers, key)
			return open || answered
		})
	}()
	if err != nil {
		return ferrule.Answer{}, fmt.Errorf("storing a question: %w", err)
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return ferrule.Answer{}, context.Cause(ctx)
	}
}

// changed takes note of what others did to the record.
func (r *Running) changed(t *ferrule.Task) {
	r.state.Lock()
	defer r.state.Unlock()
	for key, a := range t.Answers {
		if answer := r.waiting[key]; answer != nil {
			answer <- a
			delete(r.waiting, key)
		}
	}
	if r.resumed && !r.tasks.runs(t) {
		go r.cancel(errTaken)
	}
	if t.Cancel && !r.cancelled {
		r.cancelled = true
		go r.cancel(ErrCancelled)
	}
}

// Complete ends the task with a result of tools/call, which says itself whether the call
// failed.
func (r *Running) Complete(ctx context.Context, result json.RawMessage) {
	if limit := r.tasks.parts.Config.MaxResult; len(result) > limit {
		t := r.Task()
		e := ferrule.Errorf(ferrule.Failed, "%s of %s has ended, and its result is too large to keep: limit is %d bytes, got %d", t.Tool, t.Device, limit, len(result)).
			WithHint("check the device; ask for less, or use a program that waits for the result")
		result = failedResult(e)
	}
	r.end(ctx, ferrule.Task{Status: ferrule.TaskCompleted, Result: result})
}

// Fail ends the task with an error of the request.
func (r *Running) Fail(ctx context.Context, code int64, text string) {
	r.end(ctx, ferrule.Task{Status: ferrule.TaskFailed, ErrorCode: code, ErrorText: text})
}

// CompleteCancelled ends the task because its owner wanted that. The message says whether the
// call may have run.
func (r *Running) CompleteCancelled(ctx context.Context, message string) {
	r.end(ctx, ferrule.Task{Status: ferrule.TaskCancelled, Message: message})
}

// end ends the task. It tries until the store has it, or ctx ends: then the task seems to run,
// until Recover ends it.
func (r *Running) end(ctx context.Context, outcome ferrule.Task) {
	r.state.Lock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.state.Unlock()
	for {
		err := r.update(ctx, func(t *ferrule.Task) bool {
			t.Status, t.Message, t.Result, t.ErrorCode, t.ErrorText = outcome.Status, outcome.Message, outcome.Result, outcome.ErrorCode, outcome.ErrorText
			t.TTL = time.Since(t.Created).Truncate(time.Millisecond) + r.tasks.parts.Config.Keep
			return true
		})
		if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, errTaken) {
			return
		}
		r.tasks.parts.Log.Warn("tasks: the outcome of a call cannot be stored yet", "call", r.Task().Call, "device", r.Task().Device, "tool", r.Task().Tool, "err", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}

// extend promises to keep the task for Keep from now on.
func (r *Running) extend(ctx context.Context) {
	r.update(ctx, func(t *ferrule.Task) bool { // the next sweep tries again
		t.TTL = time.Since(t.Created).Truncate(time.Millisecond) + r.tasks.parts.Config.Keep
		return true
	})
}

// update changes the record. A record that has ended stays as it is.
func (r *Running) update(ctx context.Context, fn func(*ferrule.Task) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range maxConflicts {
		if r.record.Status.Final() {
			return nil
		}
		next := *r.record
		if !fn(&next) {
			return nil
		}
		settle(&next)
		revision, err := r.tasks.put(ctx, &next, r.revision)
		if err == nil {
			r.record, r.revision = &next, revision
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
		now, revision, err := r.tasks.read(context.WithoutCancel(ctx), r.record.ID)
		if err != nil {
			return err
		}
		if !r.tasks.runs(now) {
			return errTaken
		}
		r.record, r.revision = now, revision
	}
	return ErrConflict
}
