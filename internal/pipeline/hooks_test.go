package pipeline_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// watcher is a hook that remembers what it sees, and refuses one tool.
type watcher struct {
	refuses string
	seen    []string
}

func (w *watcher) Before(_ context.Context, call *ferrule.Call) error {
	w.seen = append(w.seen, "before "+call.Tool)
	if call.Tool == w.refuses {
		return ferrule.Errorf(ferrule.Denied, "refused by a hook")
	}
	return nil
}

func (w *watcher) After(call *ferrule.Call, _ time.Duration, err error) {
	outcome := ""
	if err != nil {
		outcome = fmt.Sprintf(" %s %t", ferrule.AsError(err).Code, ferrule.AsError(err).MayHaveRun())
	}
	w.seen = append(w.seen, "after "+call.Tool+outcome)
}

// ownTools has tools of the gateway for people beside a board.
type ownTools struct{ gatewayTools }

func (o ownTools) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	dev, m, ok := o.gatewayTools.Lookup(id)
	if id == ferrule.GatewayID {
		m.Tools = append(m.Tools, ferrule.Tool{Name: "reload", Effect: ferrule.Changes, UserOnly: true})
	}
	return dev, m, ok
}

// TestHooks: hooks see what the policy permits, cached answers too, and are told the
// outcomes. They see neither a stop nor what makes things safe.
func TestHooks(t *testing.T) {
	w, l := &watcher{}, &ledger{}
	sent := 0
	cfg := pipeline.DefaultConfig()
	cfg.Cache = time.Minute
	handle := pipeline.New(pipeline.Parts{
		Config: cfg, Journal: l, Hooks: w, Log: slog.New(slog.DiscardHandler),
		Policy: func(call *ferrule.Call) ferrule.Verdict {
			if call.Tool == "burn" {
				return ferrule.Verdict{Ruling: ferrule.Forbid}
			}
			return ferrule.Verdict{Ruling: ferrule.Permit}
		},
		Fleet: testFleet{ownTools{}, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			sent++
			if string(call.Args) == `{"panic":true}` {
				panic("short circuit")
			}
			return &ferrule.Result{Value: []byte(`1`)}, nil
		}},
	}).Handle
	for _, test := range []struct {
		name    string
		call    ferrule.Call
		refuses string
		code    ferrule.Code
		sent    int
		seen    []string
	}{
		{"a call", ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: []byte(`{"pin":1}`)}, "", "", 1, []string{"before move", "after move"}},
		{"refused", ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: []byte(`{"pin":1}`)}, "move", ferrule.Denied, 0, []string{"before move", "after move denied false"}},
		{"forbidden by the policy", ferrule.Call{Principal: robby, Device: "robot", Tool: "burn"}, "", ferrule.Denied, 0, nil},
		{"invalid", ferrule.Call{Principal: robby, Device: "robot", Tool: "move"}, "", ferrule.Invalid, 0, nil},
		{"a panic", ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: []byte(`{"panic":true}`)}, "", ferrule.Internal, 1, []string{"before move", "after move internal true"}},
		{"an answer for the cache", ferrule.Call{Principal: robby, Device: "robot", Tool: "look"}, "", "", 1, []string{"before look", "after look"}},
		{"a cached answer", ferrule.Call{Principal: robby, Device: "robot", Tool: "look"}, "look", ferrule.Denied, 0, []string{"before look", "after look denied false"}},
		{"urgent", ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Gateway}, Urgent: true, Device: "robot", Tool: "move", Args: []byte(`{"pin":1}`)}, "move", "", 1, nil},
		{"a reading", ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Gateway}, Device: "robot", Tool: "look"}, "look", "", 1, nil},
		{"a stop", ferrule.Call{Principal: robby, Device: ferrule.GatewayID, Tool: ferrule.StopTool}, ferrule.StopTool, "", 1, nil},
		{"a repair", ferrule.Call{Principal: anna, Device: ferrule.GatewayID, Tool: "reload"}, "reload", "", 1, nil},
		{"another tool of the gateway", ferrule.Call{Principal: anna, Device: ferrule.GatewayID, Tool: "adopt_device"}, "adopt_device", ferrule.Denied, 0, []string{"before adopt_device", "after adopt_device denied false"}},
	} {
		w.refuses, w.seen, sent = test.refuses, nil, 0
		_, err := handle(t.Context(), &test.call)
		code := ferrule.Code("")
		if err != nil {
			code = ferrule.AsError(err).Code
		}
		if code != test.code || sent != test.sent || !slices.Equal(w.seen, test.seen) {
			t.Errorf("%s: got %v, sent %d, seen %q", test.name, err, sent, w.seen)
		}
	}
}

// TestHooksOfOtherNode: the node that holds the device asks its hooks.
func TestHooksOfOtherNode(t *testing.T) {
	w := &watcher{refuses: "look"}
	handle := pipeline.New(pipeline.Parts{
		Config: pipeline.DefaultConfig(), Journal: &ledger{}, Hooks: w, Log: slog.New(slog.DiscardHandler), Fleet: elsewhere{},
	}).Handle
	if _, err := handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"}); err != nil || len(w.seen) > 0 {
		t.Errorf("got %v, seen %q", err, w.seen)
	}
}

// elsewhere has its devices on another node.
type elsewhere struct{}

func (elsewhere) Own(string) (ferrule.Target, bool) { return ferrule.Target{}, false }
func (elsewhere) Target(id string) (ferrule.Target, bool) {
	dev, m, ok := oneBoard{}.Lookup(id)
	return ferrule.Target{Device: dev, Manifest: m, Remote: true, Handler: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{}, nil
	}}, ok
}
