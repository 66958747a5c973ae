package mcpserver

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestTaskLimits checks that the number of tasks is limited, that tasks expire after their end,
// and that a call that has ended or was abandoned does not become a task.
func TestTaskLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTasks()
		cancelled := 0
		begin := func() *task { return l.begin("anna", func() { cancelled++ }) }
		var all []*task
		for range maxTasks {
			one := begin()
			one.promote()
			all = append(all, one)
		}
		surplus := begin()
		if surplus.promote(); surplus.isTask() || l.find(surplus.id, "anna") != nil {
			t.Error("there are too many tasks")
		}
		if surplus.abandon(); cancelled != 1 {
			t.Error("a call is not cancelled with its request")
		}
		if all[0].abandon(); cancelled != 1 {
			t.Error("a task is cancelled with its request")
		}
		if l.find(all[0].id, "anna") != all[0] || l.find(all[0].id, "otto") != nil {
			t.Error("only its owner finds a task")
		}
		all[0].end(&mcp.CallToolResult{}, nil)
		time.Sleep(keepTask - time.Second)
		if shown := all[0].show("complete"); shown.Status != taskCompleted || shown.TTL != keepTask.Milliseconds() || !json.Valid(shown.Result) {
			t.Errorf("got %+v", shown)
		}
		time.Sleep(2 * time.Second)
		if l.find(all[0].id, "anna") != nil {
			t.Error("a task does not expire")
		}
		late := begin()
		late.end(&mcp.CallToolResult{}, nil)
		if late.promote(); late.isTask() {
			t.Error("a call that has ended became a task")
		}
		asks := begin()
		if !asks.staysCall() {
			t.Error("a call is a task")
		}
		if asks.promote(); asks.isTask() {
			t.Error("a call that returns its questions became a task")
		}
	})
}
