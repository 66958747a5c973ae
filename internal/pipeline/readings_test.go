package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// poller is the gateway itself.
var poller = ferrule.Principal{Role: ferrule.Gateway, Name: "poller"}

// TestReadings checks that the gateway's own readings pass the same stages but are
// counted, not journaled.
func TestReadings(t *testing.T) {
	for name, test := range map[string]struct {
		call ferrule.Call
		end  ferrule.Handler // answers if nil
		code ferrule.Code
		sent bool
	}{
		"reading":                   {call: ferrule.Call{Device: "robot", Tool: "look"}, sent: true},
		"what may change something": {call: ferrule.Call{Device: "robot", Tool: "burn"}, sent: true},
		"for people only":           {call: ferrule.Call{Device: "robot", Tool: "reset"}, code: ferrule.NotFound},
		"in quarantine":             {call: ferrule.Call{Device: "robot", Tool: "broken"}, code: ferrule.Denied},
		"pending":                   {call: ferrule.Call{Device: "pending", Tool: "look"}, code: ferrule.NotFound},
		"offline":                   {call: ferrule.Call{Device: "offline", Tool: "look"}, code: ferrule.Offline},
		"arguments that do not fit": {call: ferrule.Call{Device: "robot", Tool: "move"}, code: ferrule.Invalid},
		"a failure": {
			call: ferrule.Call{Device: "robot", Tool: "look"}, code: ferrule.Internal, sent: true,
			end: func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return nil, errors.New("oops") },
		},
		"a panic": {
			call: ferrule.Call{Device: "robot", Tool: "burn"}, code: ferrule.Internal, sent: true,
			end: func(context.Context, *ferrule.Call) (*ferrule.Result, error) { panic("short circuit") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			sent := false
			p := withCache(0, oneBoard{}, l, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				sent = true
				if test.end != nil {
					return test.end(ctx, call)
				}
				return &ferrule.Result{Value: json.RawMessage("1")}, nil
			})
			test.call.Principal = poller
			result, err := p.Handle(t.Context(), &test.call)
			failed := uint64(0)
			if test.code != "" {
				failed = 1
			}
			e, _ := err.(*ferrule.Error)
			if (result == nil) != (test.code != "") || test.code != "" && (e == nil || e.Code != test.code) || sent != test.sent {
				t.Errorf("got %v, %v; sent: %t", result, err, sent)
			}
			if s := p.Stats(); s.Readings != 1 || s.ReadingsFailed != failed {
				t.Errorf("counted %+v", s)
			}
			if len(l.entries) != 0 {
				t.Errorf("recorded %q", l.entries)
			}
		})
	}
}

// TestReadingsOnly checks that calls of others, and other operations of the gateway,
// are journaled.
func TestReadingsOnly(t *testing.T) {
	var l ledger
	p := withCache(0, oneBoard{}, &l, new(counter).handle)
	for _, call := range []ferrule.Call{
		{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "poller"}, Device: "robot", Tool: "look"},
		{Principal: poller, Device: "robot", Operation: ferrule.Subscribe, Tool: "r://1"},
	} {
		if _, err := p.Handle(t.Context(), &call); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(l.entries, ", "), "outcome robot look {}, outcome robot subscriber://1 {}"; got != want {
		t.Errorf("recorded %s", got)
	}
	if s := p.Stats(); s.Readings != 0 {
		t.Errorf("counted %+v", s)
	}
}

// TestReadingsAndCache checks that a reading reaches the device and does not use the
// cache, unless it may change something: then it invalidates.
func TestReadingsAndCache(t *testing.T) {
	p := withCache(time.Minute, &shop{}, nowhere{}, new(counter).handle)
	for i, step := range []struct {
		who  ferrule.Principal
		tool string
		want string
		kept bool // it was answered from what is kept
	}{
		{robby, "look", "1", false},
		{robby, "peek", "2", false},
		{poller, "look", "3", false}, // asks, although it is known
		{robby, "look", "1", true},   // and what was kept still is
		{robby, "peek", "2", true},
		{poller, "watch", "4", false},
		{robby, "look", "1", true},
		{poller, "move", "5", false}, // may have changed what was kept
		{robby, "look", "6", false},
		{robby, "peek", "7", false},
		{robby, "press", "8", false},  // changes, and is kept, as its owner says
		{poller, "press", "9", false}, // yet not for the gateway
		{robby, "press", "10", false},
		{poller, "look", "11", false},
		{robby, "press", "10", true},
	} {
		result, err := p.Handle(t.Context(), &ferrule.Call{Principal: step.who, Device: "a", Tool: step.tool})
		if err != nil || string(result.Value) != step.want || (result.Age > 0) != step.kept {
			t.Errorf("step %d, %s of %s: got %+v, %v", i+1, step.tool, step.who, result, err)
		}
	}
	if s := p.Stats(); s.CacheHits != 4 || s.CacheMisses != 6 || s.Readings != 5 {
		t.Errorf("counted %+v", s)
	}
}

// TestReadingsDuringCall checks that a reading that may change something prevents
// caching.
func TestReadingsDuringCall(t *testing.T) {
	var p *pipeline.Pipeline
	count := new(counter)
	p = withCache(time.Minute, &shop{}, nowhere{}, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Principal == robby && count.sent.Load() == 0 { // the first look: the gateway moves something meanwhile
			if _, err := p.Handle(ctx, &ferrule.Call{Principal: poller, Device: "a", Tool: "move"}); err != nil {
				t.Error(err)
			}
		}
		return count.handle(ctx, call)
	})
	for i, want := range []string{"2", "3", "3"} {
		result, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "a", Tool: "look"})
		if err != nil || string(result.Value) != want {
			t.Errorf("look %d: got %+v, %v", i+1, result, err)
		}
	}
}
