package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/cluster/taskstore"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

func newTask(id string) *ferrule.Task {
	now := time.Now().UTC()
	return &ferrule.Task{ID: id, Device: "kiln", Tool: "fire", Status: ferrule.TaskWorking, Created: now, Updated: now, TTL: time.Hour}
}

// TestTasks checks that another node has the tasks of a node that is gone, and knows that it is
// gone. A node that runs no more stores nothing.
func TestTasks(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := nodeWith(t, "a", cfg, noJournal{}, t.TempDir()), nodeWith(t, "b", cfg, noJournal{}, t.TempDir())
	task := newTask("SHARED01")
	task.Node, task.Boot = "a", a.cluster.Boot()
	wait.For(t, "a task is stored", func() bool {
		_, err := a.cluster.Tasks().Put(t.Context(), task, 0)
		return err == nil
	})
	wait.For(t, "its node is alive", func() bool {
		boot, _ := b.cluster.Peer("a")
		return boot == task.Boot
	})
	a.stop()
	if _, err := a.cluster.Tasks().Put(t.Context(), newTask("SHARED02"), 0); !errors.Is(err, taskstore.ErrUnreachable) {
		t.Errorf("a node that has stopped: %v", err)
	}
	wait.For(t, "its node is gone", func() bool {
		boot, _ := b.cluster.Peer("a")
		return boot == ""
	})
	if got, _, err := b.cluster.Tasks().Get(t.Context(), task.ID); err != nil || got.Node != "a" {
		t.Errorf("got %+v, %v", got, err)
	}
}
