package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/cluster/taskstore"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/waits"
)

// smallStore refuses long results, as the cluster does.
type smallStore struct{ *tasks.Memory }

func (s smallStore) Put(ctx context.Context, t *ferrule.Task, revision uint64) (uint64, error) {
	if len(t.Result) > 1000 {
		return 0, taskstore.ErrTooLarge
	}
	return s.Memory.Put(ctx, t, revision)
}

// TestLargeOutcome checks that a call whose result cannot be kept has ended nevertheless.
func TestLargeOutcome(t *testing.T) {
	for _, failed := range []bool{false, true} {
		r := newTaskRecords(smallStore{tasks.NewMemory()})
		task := &ferrule.Task{ID: "LARGE001", Status: ferrule.TaskWorking, Created: time.Now(), TTL: time.Hour}
		revision, err := r.Put(t.Context(), task, 0)
		if err != nil {
			t.Fatal(err)
		}
		task.Status, task.Result = ferrule.TaskCompleted, textResult(strings.Repeat("x", 2000), failed)
		if _, err := r.Put(t.Context(), task, revision); err != nil {
			t.Fatal(err)
		}
		got, _, err := r.Get(t.Context(), task.ID)
		if err != nil {
			t.Fatal(err)
		}
		var result struct{ IsError bool }
		if err := json.Unmarshal(got.Result, &result); err != nil {
			t.Fatal(err)
		}
		if got.Status != ferrule.TaskCompleted || result.IsError != failed || !strings.Contains(string(got.Result), "has ended") {
			t.Errorf("got %s: %s", got.Status, got.Result)
		}
		if n := r.Counts()[ferrule.TaskCompleted]; n != 1 {
			t.Errorf("%d tasks have completed", n)
		}
	}
}

// TestInterrupted checks what is said about a call that a restart interrupted.
func TestInterrupted(t *testing.T) {
	task := &ferrule.Task{Device: "kiln", Tool: "fire"}
	for _, c := range []struct {
		name    string
		found   callEvidence
		notSent bool
		want    string
		ran     bool
	}{
		{"nothing is known", callEvidence{}, false, "may have run", true},
		{"it was not sent", callEvidence{}, true, "Nothing was sent", false},
		{"it was about to be sent", callEvidence{intent: true}, true, "may have run", true},
		{"it succeeded", callEvidence{intent: true, outcome: &ferrule.Entry{}}, true, "has run", true},
		{"it failed", callEvidence{intent: true, outcome: &ferrule.Entry{Code: ferrule.Failed, Message: "too hot", MayHaveRun: true}}, true, "too hot. The action may have run", true},
		{"it was denied", callEvidence{outcome: &ferrule.Entry{Code: ferrule.Denied, Message: "not at night"}}, false, "not at night. Nothing was sent", false},
	} {
		e := interrupted(task, c.found, c.notSent)
		if text := e.Explain(); !strings.Contains(text, c.want) || e.MayHaveRun() != c.ran {
			t.Errorf("%s: %s (may have run: %t)", c.name, text, e.MayHaveRun())
		}
	}
	wait := &ferrule.Task{Device: ferrule.GatewayID, Tool: waits.Tool}
	for _, found := range []callEvidence{{}, {intent: true}, {outcome: &ferrule.Entry{}}} {
		if text := interrupted(wait, found, false).Explain(); !strings.Contains(text, "the wait has ended") || !strings.Contains(text, "Nothing was sent") || !strings.Contains(text, "again") {
			t.Errorf("a wait with %+v: %s", found, text)
		}
	}
}
