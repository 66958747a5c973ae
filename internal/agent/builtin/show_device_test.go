package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestShowDevice checks what a panel gets, with the tools under the names of each sort of
// list, and the text for others.
func TestShowDevice(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var asked []string
	pipeline := func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		asked = append(asked, call.Tool+" for "+call.Principal.String())
		var out any = builtin.LatestOutput{Signals: []builtin.LatestSignal{{Name: "air", Value: 21.5, Unit: "°C", Time: at}}}
		if call.Tool == "history" {
			out = builtin.HistoryOutput{Signals: []builtin.HistorySeries{{Name: "air", Points: []builtin.HistoryPoint{{Time: at, Value: 20}}, Gaps: []builtin.HistoryGap{{From: at, To: at.Add(time.Second)}}}}}
		}
		value, err := json.Marshal(out)
		return &ferrule.Result{Value: value}, err
	}
	tool := &ferrule.Tool{Name: "dim", Effect: ferrule.Changes, Input: json.RawMessage(`{"type":"object"}`)}
	large := &ferrule.Tool{Name: "large", Effect: ferrule.Reads, Input: json.RawMessage(`"` + strings.Repeat("x", 20<<10) + `"`)}
	for _, test := range []struct {
		name, argument, through string
		want                    string
	}{
		{"a__dim", "", "", `a__dim map[] ""`},
		{"lamp--1__dim", "device", "", `lamp--1__dim map[device:a] ""`},
		{"a__dim", "", "gateway__call_tool", `gateway__call_tool map[name:a__dim] "arguments"`},
	} {
		asked = nil
		set := newSet(t, builtin.ShowDevice(someDevices(), nil, func(ferrule.Principal, string) ([]ferrule.Offer, string) {
			return []ferrule.Offer{{Name: test.name, Argument: test.argument, Tool: tool}, {Name: "a__large", Tool: large}}, test.through
		}, pipeline))
		call := &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "x"}, Tool: builtin.ShowDeviceTool, Args: json.RawMessage(`{"device":"a"}`)}
		result, err := set.Handle(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		var out builtin.ShowDeviceOutput
		if err := json.Unmarshal(result.Value, &out); err != nil {
			t.Fatal(err)
		}
		if len(out.Tools) != 1 || out.MoreTools != 1 || fmt.Sprintf("%s %v %q", out.Tools[0].Name, out.Tools[0].Arguments, out.Tools[0].Into) != test.want {
			t.Errorf("got %+v, want %s", out.Tools, test.want)
		}
		if len(out.Values) != 1 || len(out.Values[0].Curve) != 1 || len(out.Values[0].Gaps) != 1 || fmt.Sprint(asked) != "[latest for agent:x history for agent:x]" {
			t.Errorf("got %+v after %q", out.Values, asked)
		}
		if text := result.Content[0].Text; !strings.Contains(text, "a is online since") || !strings.Contains(text, "air: 21.5 °C") || !strings.Contains(text, test.name+" (changes)") {
			t.Errorf("the text is %q", text)
		}
		call.Args = json.RawMessage(`{"device":"a","brief":true}`)
		if result, err = set.Handle(t.Context(), call); err != nil || strings.Contains(string(result.Value), "dim") || strings.Contains(string(result.Value), "curve") {
			t.Errorf("got %s, %v", result.Value, err)
		}
		call.Args = json.RawMessage(`{"device":"b"}`) // pending
		if _, err := set.Handle(t.Context(), call); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
	}
}

// waitingCalls are requests of several callers.
type waitingCalls []ferrule.Approval

func (w waitingCalls) List(context.Context, *ferrule.Call) ([]ferrule.Approval, []string) {
	return w, nil
}

func (w waitingCalls) Answer(ferrule.Principal, builtin.AnswerApprovalInput) (ferrule.Approval, error) {
	panic("nobody answers")
}

// TestApprovalStatus checks that callers see their own requests only, with exact arguments.
func TestApprovalStatus(t *testing.T) {
	request := func(id, caller string, auth ferrule.Auth) ferrule.Approval {
		return ferrule.Approval{ID: id, State: ferrule.ApprovalWaiting, Caller: caller, Auth: auth, TokenID: "1", Device: "door", Tool: "unlock", Args: json.RawMessage(`{"n":12345678901234567890}`), Rule: "house.cedar:12", Expires: time.Now().Add(time.Minute)}
	}
	before := request("other", "agent:x", ferrule.AuthToken)
	before.TokenID = "0" // a token of the same name that was revoked
	set := newSet(t, builtin.ApprovalStatus(waitingCalls{
		request("own", "agent:x", ferrule.AuthToken), request("other", "agent:y", ferrule.AuthToken), request("pretender", "agent:x", ferrule.AuthLoopback), before,
	}, func() string { return "http://here/approvals" }))
	result, err := set.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "x", Auth: ferrule.AuthToken, TokenID: "1"}, Tool: builtin.ApprovalStatusTool, Args: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	var out builtin.ApprovalStatusOutput
	if err := json.Unmarshal(result.Value, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Approvals) != 1 || out.Approvals[0].ID != "own" || out.Approvals[0].Exact != `{"n":12345678901234567890}` || out.Approvals[0].Rule != "" || out.Console != "http://here/approvals" {
		t.Errorf("got %s", result.Value)
	}
	if text := result.Content[0].Text; !strings.Contains(text, "own") || strings.Contains(text, "other") || strings.Contains(text, "pretender") || !strings.Contains(text, "A person answers at http://here/approvals") {
		t.Errorf("the text is %q", text)
	}
}
