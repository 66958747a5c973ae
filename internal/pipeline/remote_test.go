package pipeline_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// remoteFleet is a fleet whose devices are held by another node.
type remoteFleet struct{ testFleet }

func (f remoteFleet) Target(id string) (ferrule.Target, bool) {
	target, ok := f.testFleet.Target(id)
	target.Remote = true
	return target, ok
}

// TestRemoteRecords checks that each call to a device of another node has one record: there
// if it succeeded, here if it did not get there or was answered from the cache.
func TestRemoteRecords(t *testing.T) {
	var l ledger
	p := pipeline.New(pipeline.Parts{
		Config: pipeline.Config{Deadline: time.Second, InFlight: 9, Cache: time.Minute}, Journal: &l,
		Fleet: remoteFleet{testFleet{oneBoard{}, new(counter).handle}}, Log: slog.New(slog.DiscardHandler),
	})
	for _, step := range []struct {
		tool    string
		records int // so far
	}{{"look", 0}, {"look", 1}, {"move", 1}, {"fly", 2}} {
		p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: step.tool, Args: json.RawMessage(`{"note":"x"}`)})
		if len(l.entries) != step.records {
			t.Errorf("after %s: %q", step.tool, l.entries)
		}
	}
}
