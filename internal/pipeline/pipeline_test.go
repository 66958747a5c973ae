package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// ledger is a journal in memory, which can be made to fail.
type ledger struct {
	mu      sync.Mutex // gaps are recorded in the background
	entries []string
	gaps    string // messages of gaps
	full    error
}

func (l *ledger) Append(e ferrule.Entry, durable bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full != nil {
		return l.full
	}
	if e.Phase == ferrule.JournalGap {
		l.gaps += e.Message
	}
	line := fmt.Sprintf("%s %s %s%s %s", e.Phase, e.Device, e.Operation, e.Tool, e.Args)
	if e.Code != "" {
		line += " " + string(e.Code)
	}
	if e.MayHaveRun {
		line += " may have run"
	}
	if durable {
		line += " durable"
	}
	l.entries = append(l.entries, line)
	return nil
}

// lookup finds devices.
type lookup interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
}

// testFleet is a fleet whose devices are all served by one handler.
type testFleet struct {
	lookup
	handle ferrule.Handler
}

func (f testFleet) Own(id string) (ferrule.Target, bool) { return f.Target(id) }

func (f testFleet) Target(id string) (ferrule.Target, bool) {
	dev, m, ok := f.Lookup(id)
	if id == "offline" {
		return ferrule.Target{Device: dev, Manifest: m}, ok
	}
	return ferrule.Target{Device: dev, Manifest: m, Handler: f.handle}, ok
}

// oneBoard knows a few devices with the same tools.
type oneBoard struct{}

func (oneBoard) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	dev := &ferrule.Device{ID: id, Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
	switch id {
	case "robot":
	case "pending":
		dev.Trust = ferrule.TrustPending
	case "offline", "away":
		dev.State, dev.Reason = ferrule.StateOffline, "unplugged"
	case "expected":
		dev.Kind, dev.State, dev.Reason = "", ferrule.StateOffline, "refused"
		return dev, nil, true
	default:
		return nil, nil, false
	}
	return dev, &ferrule.Manifest{Operations: []ferrule.Operation{ferrule.ReadResource, ferrule.GetPrompt, ferrule.Complete, ferrule.Subscribe}, Prompts: []ferrule.Prompt{
		{Name: "tour", Arguments: []ferrule.PromptArgument{{Name: "room", Required: true}, {Name: "pace"}}},
	}, Tools: []ferrule.Tool{
		{Name: "look", Effect: ferrule.Reads},
		{Name: "move", Effect: ferrule.Changes, Deadline: ferrule.Duration(5 * time.Second), Check: func(args map[string]any) []string {
			if len(args) == 0 {
				return []string{"pin is missing", "value is missing"}
			}
			return nil
		}},
		{Name: "burn", Effect: ferrule.Endangers},
		{Name: "measure", Effect: ferrule.Changes, CheckOutput: func(json.RawMessage) []string { return []string{"value is missing"} }},
		{Name: "reset", Effect: ferrule.Changes, UserOnly: true},
		{Name: "broken", Effect: ferrule.Changes, Quarantine: "its schema refers to itself"},
	}}, true
}

var (
	anna  = ferrule.Principal{Role: ferrule.Person, Name: "anna"}
	robby = ferrule.Principal{Role: ferrule.Agent, Name: "robby"}
)

func build(l *ledger, end ferrule.Handler) ferrule.Handler { return withPolicy(l, nil, end) }

func withPolicy(l *ledger, policy pipeline.Policy, end ferrule.Handler) ferrule.Handler {
	return pipeline.New(pipeline.Parts{
		Config: pipeline.DefaultConfig(), Journal: l, Fleet: testFleet{oneBoard{}, end}, Policy: policy, Log: slog.New(slog.DiscardHandler),
	}).Handle
}

// rules returns a policy with the same verdict for every call.
func rules(ruling ferrule.Ruling, why string) pipeline.Policy {
	return func(*ferrule.Call) ferrule.Verdict { return ferrule.Verdict{Ruling: ruling, Reason: why} }
}

func TestPipeline(t *testing.T) {
	for name, test := range map[string]struct {
		call    ferrule.Call
		full    error
		policy  pipeline.Policy
		end     ferrule.Handler // answers "done" if nil
		code    ferrule.Code
		message string
		sent    string   // what reached the device
		journal []string // what was recorded
	}{
		"reading": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "look"},
			sent: "look {}", journal: []string{"outcome robot look {}"},
		},
		"changing": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(`{"pin":2}`)},
			sent: `move {"pin":2}`, journal: []string{`intent robot move {"pin":2} durable`, `outcome robot move {"pin":2} durable`},
		},
		"endangering": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "burn"},
			sent: "burn {}", journal: []string{"intent robot burn {} durable", "outcome robot burn {} durable"},
		},
		"a member twice is sent once": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "look", Args: json.RawMessage(`{"pin":258,"pin":2}`)},
			sent: `look {"pin":2}`, journal: []string{`outcome robot look {"pin":2}`},
		},
		"no such device": {
			call: ferrule.Call{Principal: anna, Device: "toaster", Tool: "look"},
			code: ferrule.NotFound, message: `there is no device "toaster"`, journal: []string{"outcome toaster look  not_found"},
		},
		"no such tool": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "fly"},
			code: ferrule.NotFound, message: `robot has no tool "fly"`, journal: []string{"outcome robot fly  not_found"},
		},
		"pending, for an agent": {
			call: ferrule.Call{Principal: robby, Device: "pending", Tool: "look"},
			code: ferrule.NotFound, message: `there is no device "pending"`, journal: []string{"outcome pending look  not_found"},
		},
		"pending, for a person": {
			call: ferrule.Call{Principal: anna, Device: "pending", Tool: "look"},
			code: ferrule.Pending, message: "not adopted", journal: []string{"outcome pending look  pending"},
		},
		"offline": {
			call: ferrule.Call{Principal: robby, Device: "offline", Tool: "move"},
			code: ferrule.Offline, message: "unplugged", journal: []string{"outcome offline move  offline"},
		},
		"away for a moment": {
			call: ferrule.Call{Principal: robby, Device: "away", Tool: "look"},
			sent: "look {}", journal: []string{"outcome away look {}"},
		},
		"a poll of a device that is away": {
			call: ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Gateway}, Device: "away", Tool: "look"},
			code: ferrule.Offline, message: "unplugged",
		},
		"never reached": {
			call: ferrule.Call{Principal: robby, Device: "expected", Tool: "move"},
			code: ferrule.Offline, message: "was never reached", journal: []string{"outcome expected move  offline"},
		},
		"for people only, by an agent": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "reset"},
			code: ferrule.NotFound, message: `robot has no tool "reset"`, journal: []string{"outcome robot reset  not_found"},
		},
		"for people only, by a person": {
			call: ferrule.Call{Principal: anna, Device: "robot", Tool: "reset"},
			sent: "reset {}", journal: []string{"intent robot reset {} durable", "outcome robot reset {} durable"},
		},
		"in quarantine": {
			call: ferrule.Call{Principal: anna, Device: "robot", Tool: "broken"},
			code: ferrule.Denied, message: "its schema refers to itself", journal: []string{"outcome robot broken  denied"},
		},
		"an answer that is not what was declared": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "measure"}, sent: "measure {}",
			code: ferrule.Failed, message: "measure ran on robot, but its answer violates its schema: value is missing",
			journal: []string{"intent robot measure {} durable", "outcome robot measure {} failed may have run durable"},
		},
		"arguments that do not fit": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(`{}`)},
			code: ferrule.Invalid, message: "pin is missing; value is missing", journal: []string{"outcome robot move {} invalid"},
		},
		"arguments that are no object": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(`[1]`)},
			code: ferrule.Invalid, message: "must be an object, got [1]", journal: []string{"outcome robot move [1] invalid"},
		},
		"arguments that are no JSON": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(`{"pin`)},
			code: ferrule.Invalid, message: "not JSON", journal: []string{`outcome robot move {"pin invalid`},
		},
		"permitted": {
			call:   ferrule.Call{Principal: robby, Device: "robot", Tool: "look"},
			policy: rules(ferrule.Permit, ""),
			sent:   "look {}", journal: []string{"outcome robot look {}"},
		},
		"forbidden": {
			call:   ferrule.Call{Principal: robby, Device: "robot", Tool: "burn"},
			policy: rules(ferrule.Forbid, "it is night"),
			code:   ferrule.Denied, message: "burn of robot is forbidden: it is night", journal: []string{"outcome robot burn {} denied"},
		},
		"a verdict that rules nothing": {
			call:   ferrule.Call{Principal: robby, Device: "robot", Tool: "look"},
			policy: rules("", ""),
			code:   ferrule.Denied, message: "forbidden: no reason given", journal: []string{"outcome robot look {} denied"},
		},
		"a person must agree": {
			call:   ferrule.Call{Principal: robby, Device: "robot", Tool: "burn"},
			policy: rules(ferrule.Ask, "it burns"),
			code:   ferrule.Denied, message: "burn of robot needs approval, and nobody can be asked: it burns", journal: []string{"outcome robot burn {} denied"},
		},
		"a policy that looks at the arguments": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(`{"pin":13}`)},
			policy: func(call *ferrule.Call) ferrule.Verdict {
				if call.Target.Tool.Effect == ferrule.Changes && strings.Contains(string(call.Args), "13") {
					return ferrule.Verdict{Ruling: ferrule.Forbid, Reason: "pin 13 is the door"}
				}
				return ferrule.Verdict{Ruling: ferrule.Permit}
			},
			code: ferrule.Denied, message: "pin 13 is the door", journal: []string{`outcome robot move {"pin":13} denied`},
		},
		"a policy is not asked about arguments that do not fit": {
			call:   ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(`{}`)},
			policy: func(*ferrule.Call) ferrule.Verdict { panic("asked") },
			code:   ferrule.Invalid, message: "pin is missing", journal: []string{"outcome robot move {} invalid"},
		},
		"a verdict that the caller brings": {
			call:   ferrule.Call{Principal: robby, Device: "robot", Tool: "look", Verdict: ferrule.Verdict{Ruling: ferrule.Permit}},
			policy: rules(ferrule.Forbid, "no"),
			code:   ferrule.Denied, message: "no", journal: []string{"outcome robot look {} denied"},
		},
		"a journal that is full, changing": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(`{"pin":2}`)},
			full: errors.New("no space left"), code: ferrule.Denied, message: "not sent because it cannot be recorded: no space left",
		},
		"a journal that is full, reading": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "look"},
			full: errors.New("no space left"), sent: "look {}",
		},
		"a device that fails": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "look"},
			end: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				return nil, ferrule.Errorf(ferrule.Unanswered, "silence")
			},
			code: ferrule.Unanswered, message: "silence", journal: []string{"outcome robot look {} unanswered may have run"},
		},
		"an error without a code": {
			call: ferrule.Call{Principal: robby, Device: "robot", Tool: "look"},
			end: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				return nil, errors.New("oops")
			},
			code: ferrule.Internal, message: "oops", journal: []string{"outcome robot look {} internal may have run"},
		},
		"a panic": {
			call:    ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(`{"pin":2}`)},
			end:     func(context.Context, *ferrule.Call) (*ferrule.Result, error) { panic("short circuit") },
			code:    ferrule.Internal,
			message: "short circuit",
			journal: []string{`intent robot move {"pin":2} durable`, `outcome robot move {"pin":2} internal may have run durable`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{full: test.full}
			sent := ""
			end := test.end
			if end == nil {
				end = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					sent = call.Tool + " " + string(call.Args)
					return &ferrule.Result{Value: json.RawMessage(`"done"`)}, nil
				}
			}
			result, err := withPolicy(l, test.policy, end)(t.Context(), &test.call)
			switch e, _ := err.(*ferrule.Error); {
			case test.code == "" && (err != nil || string(result.Value) != `"done"`):
				t.Errorf("got %v, %v", result, err)
			case test.code != "" && (e == nil || e.Code != test.code || !strings.Contains(e.Message, test.message)):
				t.Errorf("got %v, want %s: %s", err, test.code, test.message)
			case e != nil && e.Code == ferrule.Denied && e.MayHaveRun():
				t.Errorf("it was denied, and may have run: %v", e)
			}
			if sent != test.sent {
				t.Errorf("the device got %q, want %q", sent, test.sent)
			}
			if !slices.Equal(l.entries, test.journal) {
				t.Errorf("recorded %q\nwant     %q", l.entries, test.journal)
			}
		})
	}
}

// TestNoPolicy checks that every valid call is permitted.
func TestNoPolicy(t *testing.T) {
	call := ferrule.Call{Principal: robby, Device: "robot", Tool: "look"}
	_, err := build(&ledger{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil })(t.Context(), &call)
	if want := (ferrule.Verdict{Ruling: ferrule.Permit, Reason: "no policy is configured"}); err != nil || call.Verdict != want {
		t.Errorf("got %+v, %v", call.Verdict, err)
	}
}

// TestAdvice checks the hint of a call that may have run.
func TestAdvice(t *testing.T) {
	silent := func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return nil, ferrule.Errorf(ferrule.Unanswered, "silence")
	}
	for tool, want := range map[string]string{"move": "check the device before retrying, for example with look", "look": ""} {
		_, err := build(&ledger{}, silent)(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: tool, Args: json.RawMessage(`{"pin":2}`)})
		if e := ferrule.AsError(err); e.Hint != want {
			t.Errorf("%s: the hint is %q", tool, e.Hint)
		}
	}
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			tool   string
			caller time.Duration
			want   time.Duration
		}{
			{"look", 0, 30 * time.Second},              // the gateway's
			{"move", 0, 5 * time.Second},               // the tool's
			{"move", 7 * time.Second, 7 * time.Second}, // the caller's
			{"look", time.Hour, 10 * time.Minute},      // bounded
		} {
			handle := build(&ledger{}, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				<-ctx.Done()
				return nil, ferrule.Errorf(ferrule.Unanswered, "within %v", call.Timeout)
			})
			start := time.Now()
			_, err := handle(t.Context(), &ferrule.Call{Principal: anna, Device: "robot", Tool: test.tool,
				Args: json.RawMessage(`{"pin":2}`), Timeout: ferrule.Duration(test.caller)})
			if took := time.Since(start); took != test.want || err.Error() != "within "+test.want.String() {
				t.Errorf("%s took %v: %v", test.tool, took, err)
			}
		}
	})
}

func TestEveryCallGetsAnID(t *testing.T) {
	handle := build(&ledger{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil })
	one := ferrule.Call{Principal: anna, Device: "robot", Tool: "look"}
	two := ferrule.Call{Principal: anna, Device: "robot", Tool: "look", ID: "mine"}
	handle(t.Context(), &one)
	handle(t.Context(), &two)
	if one.ID == "" || two.ID != "mine" {
		t.Errorf("got %q and %q", one.ID, two.ID)
	}
}

// TestUrgentForPeople checks that the gateway can make a device safe with a tool that only people
// may call otherwise.
func TestUrgentForPeople(t *testing.T) {
	for _, urgent := range []bool{false, true} {
		_, err := build(&ledger{}, new(counter).handle)(t.Context(), &ferrule.Call{
			Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "stop"}, Device: "robot", Tool: "reset", Urgent: urgent,
		})
		if urgent != (err == nil) {
			t.Errorf("urgent %t: %v", urgent, err)
		}
	}
}
