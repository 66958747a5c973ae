package pipeline_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
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
// if it succeeded, here if it did not get there. None is answered from the cache: the other
// node decides who gets an answer, and may ask a person first.
func TestRemoteRecords(t *testing.T) {
	var l ledger
	p := pipeline.New(pipeline.Parts{
		Config: pipeline.Config{Deadline: time.Second, InFlight: 9, Cache: time.Minute}, Journal: &l,
		Fleet: remoteFleet{testFleet{oneBoard{}, new(counter).handle}}, Log: slog.New(slog.DiscardHandler),
	})
	for _, step := range []struct {
		tool    string
		records int // so far
	}{{"look", 0}, {"look", 0}, {"move", 0}, {"fly", 1}} {
		p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: step.tool, Args: json.RawMessage(`{"note":"x"}`)})
		if len(l.entries) != step.records {
			t.Errorf("after %s: %q", step.tool, l.entries)
		}
	}
}

// TestRemoteApproval checks that a call that another node may hold for approval has the time
// for that in addition, and that the device has not.
func TestRemoteApproval(t *testing.T) {
	for _, test := range []struct {
		ruling ferrule.Ruling
		remote bool
		want   time.Duration
	}{{ferrule.Ask, true, 6 * time.Minute}, {ferrule.Permit, true, time.Minute}, {ferrule.Permit, false, time.Minute}} {
		var left, limit time.Duration
		board := testFleet{oneBoard{}, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			until, _ := ctx.Deadline()
			left, limit = time.Until(until), time.Duration(call.Timeout)
			return &ferrule.Result{}, nil
		}}
		var fleet pipeline.Fleet = board
		if test.remote {
			fleet = remoteFleet{board}
		}
		synctest.Test(t, func(t *testing.T) {
			handle := pipeline.New(pipeline.Parts{
				Config: pipeline.Config{Deadline: time.Minute, ApprovalWait: 5 * time.Minute, InFlight: 9}, Journal: &ledger{}, Fleet: fleet,
				Policy: rules(test.ruling, "it endangers"), Log: slog.New(slog.DiscardHandler),
			}).Handle
			if _, err := handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"}); err != nil {
				t.Error(err)
			}
		})
		if left != test.want || limit != time.Minute {
			t.Errorf("%+v: %v left, limit %v", test, left, limit)
		}
	}
}

// refusing is a pipeline.Approvals that counts and refuses.
type refusing struct{ asked int }

func (r *refusing) Await(context.Context, *ferrule.Call) error {
	r.asked++
	return ferrule.Errorf(ferrule.Denied, "nobody approved it")
}

// TestStricterNode checks that the node of a device asks if the node of the caller requires
// that, and that nobody permits what this node forbids.
func TestStricterNode(t *testing.T) {
	for _, test := range []struct {
		via         string
		there, here ferrule.Ruling
		asked       int
		code        ferrule.Code
	}{
		{"north", ferrule.Ask, ferrule.Permit, 1, ferrule.Denied},
		{"north", ferrule.Ask, ferrule.Forbid, 0, ferrule.Denied},
		{"north", "", ferrule.Permit, 0, ""},
		{"north", "", ferrule.Ask, 1, ferrule.Denied},
		{"north", ferrule.Permit, ferrule.Ask, 1, ferrule.Denied},
		{"", ferrule.Ask, ferrule.Permit, 0, ""}, // left over from an earlier attempt
	} {
		var people refusing
		handle := pipeline.New(pipeline.Parts{
			Config: pipeline.DefaultConfig(), Journal: &ledger{}, Fleet: testFleet{oneBoard{}, new(counter).handle}, Approvals: &people,
			Policy: rules(test.here, "a rule"), Log: slog.New(slog.DiscardHandler),
		}).Handle
		_, err := handle(t.Context(), &ferrule.Call{Principal: robby, Via: test.via, Device: "robot", Tool: "look", Verdict: ferrule.Verdict{Ruling: test.there}})
		code := ferrule.Code("")
		if err != nil {
			code = ferrule.AsError(err).Code
		}
		if people.asked != test.asked || code != test.code {
			t.Errorf("%+v: asked %d times, %v", test, people.asked, err)
		}
	}
}
