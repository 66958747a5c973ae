package pipeline_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// TestOperations checks that operations other than tool calls pass the same stages
// as reads: the device must support them and the arguments must be valid.
func TestOperations(t *testing.T) {
	for name, test := range map[string]struct {
		act           ferrule.Operation
		device, tool  string
		args          string
		code          ferrule.Code
		message, hint string
		journal       string
	}{
		"a resource":                {act: ferrule.ReadResource, tool: "robot://log", journal: "outcome robot readrobot://log {}"},
		"a resource with arguments": {act: ferrule.ReadResource, tool: "robot://log", args: `{"a":1}`, code: ferrule.Invalid, message: "takes no arguments", journal: `outcome robot readrobot://log {"a":1} invalid`},
		"a resource without a name": {act: ferrule.ReadResource, code: ferrule.NotFound, message: "does not support the operation read", journal: "outcome robot read  not_found"},
		"a pending device":          {act: ferrule.ReadResource, device: "pending", tool: "x", code: ferrule.NotFound, message: "no device", journal: "outcome pending readx  not_found"},
		"a prompt":                  {act: ferrule.GetPrompt, tool: "tour", args: `{"room":"hall"}`, journal: `outcome robot prompttour {"room":"hall"}`},
		"a prompt that lacks one":   {act: ferrule.GetPrompt, tool: "tour", args: `{"pace":"slow"}`, code: ferrule.Invalid, message: "room is missing", journal: `outcome robot prompttour {"pace":"slow"} invalid`},
		"a prompt with a number":    {act: ferrule.GetPrompt, tool: "tour", args: `{"room":1,"floor":"2"}`, code: ferrule.Invalid, message: "floor is not an argument of this prompt; room must be a string", journal: `outcome robot prompttour {"room":1,"floor":"2"} invalid`},
		"no such prompt":            {act: ferrule.GetPrompt, tool: "tours", code: ferrule.NotFound, message: `no prompt "tours"`, hint: "tour", journal: "outcome robot prompttours  not_found"},
		"a completion":              {act: ferrule.Complete, tool: "tour", args: `{"argument":"room","value":"h"}`, journal: `outcome robot completetour {"argument":"room","value":"h"}`},
		"a completion of nothing":   {act: ferrule.Complete, tool: "tour", code: ferrule.Invalid, message: "argument is missing", journal: "outcome robot completetour  invalid"},
		"unsupported":               {act: ferrule.Unsubscribe, tool: "robot://log", code: ferrule.NotFound, message: "does not support the operation unsubscribe", journal: "outcome robot unsubscriberobot://log  not_found"},
		"unknown operation":         {act: "dance", tool: "x", code: ferrule.NotFound, message: "does not support the operation dance", journal: "outcome robot dancex  not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			served := 0
			call := &ferrule.Call{Principal: robby, Device: "robot", Operation: test.act, Tool: test.tool, Args: json.RawMessage(test.args)}
			if test.device != "" {
				call.Device = test.device
			}
			_, err := build(l, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				served++
				if tool := call.Target.Tool; tool.Effect != ferrule.Reads || tool.Name != test.tool {
					t.Errorf("it is taken for %+v", tool)
				}
				return &ferrule.Result{}, nil
			})(t.Context(), call)
			if test.code == "" && (err != nil || served != 1) {
				t.Errorf("got %v, served %d", err, served)
			}
			if test.code != "" {
				e := ferrule.AsError(err)
				if served != 0 || e.Code != test.code || !strings.Contains(e.Message, test.message) || !strings.Contains(e.Hint, test.hint) || e.MayHaveRun() {
					t.Errorf("got %v, hint %q, served %d", err, e.Hint, served)
				}
			}
			if len(l.entries) != 1 || l.entries[0] != test.journal {
				t.Errorf("the journal has %q, want %q", l.entries, test.journal)
			}
		})
	}
}

// TestOperationsAreCachedSeparately checks that operations with the same name do not
// share an answer, and that each subscription reaches the device.
func TestOperationsAreCachedSeparately(t *testing.T) {
	cfg := pipeline.DefaultConfig()
	cfg.Cache = time.Minute
	served := make(map[ferrule.Operation]int)
	handle := pipeline.New(pipeline.Parts{Config: cfg, Journal: &ledger{}, Log: slog.New(slog.DiscardHandler), Fleet: testFleet{oneBoard{}, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		served[call.Operation]++
		return &ferrule.Result{Text: string(call.Operation)}, nil
	}}}).Handle
	for range 2 {
		for _, act := range []ferrule.Operation{ferrule.CallTool, ferrule.ReadResource, ferrule.Subscribe} {
			result, err := handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Operation: act, Tool: "look"})
			if err != nil || result.Text != string(act) {
				t.Errorf("%q: got %v, %v", act, result, err)
			}
		}
	}
	if served[ferrule.CallTool] != 1 || served[ferrule.ReadResource] != 1 || served[ferrule.Subscribe] != 2 {
		t.Errorf("the device was asked %v", served)
	}
}
