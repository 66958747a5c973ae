package pipeline_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

// TestScopes checks that a credential is a ceiling that no policy raises, for all operations
// and also on the node of the device, which has the last word: the call of another node
// comes with its principal, and what that node permitted does not count.
func TestScopes(t *testing.T) {
	for _, test := range []struct {
		scopes  string // empty for no limit
		devices string
		op      ferrule.Operation
		tool    string
		args    string
		code    ferrule.Code
		message string
	}{
		{"read", "", ferrule.CallTool, "look", "", "", ""},
		{"read", "", ferrule.CallTool, "move", `{"note":"x"}`, ferrule.Denied, "move of robot needs the scope change, and agent:robby has only: read"},
		{"change", "", ferrule.CallTool, "move", `{"note":"x"}`, "", ""},
		{"metrics", "", ferrule.CallTool, "look", "", ferrule.Denied, "needs the scope read, and agent:robby has only: metrics"},
		{"none", "", ferrule.CallTool, "look", "", ferrule.Denied, "needs the scope read, and agent:robby has only: none"},
		{"none", "", ferrule.ReadResource, "robot://log", "", ferrule.Denied, "needs the scope read"},
		{"none", "", ferrule.GetPrompt, "tour", `{"room":"hall"}`, ferrule.Denied, "needs the scope read"},
		{"none", "", ferrule.Complete, "tour", `{"argument":"room","value":"h"}`, ferrule.Denied, "needs the scope read"},
		{"none", "", ferrule.Subscribe, "robot://log", "", ferrule.Denied, "needs the scope read"},
		{"read", "", ferrule.ReadResource, "robot://log", "", "", ""},
		{"read", "", ferrule.Subscribe, "robot://log", "", "", ""},
		{"", "", ferrule.CallTool, "move", `{"note":"x"}`, "", ""},
		{"", "rob*", ferrule.CallTool, "look", "", "", ""},
		{"", "lamp", ferrule.CallTool, "look", "", ferrule.NotFound, `no device "robot"`},
		{"admin", "lamp", ferrule.ReadResource, "robot://log", "", ferrule.NotFound, `no device "robot"`},
		{"endanger", "", ferrule.CallTool, "reset", "", ferrule.NotFound, `no tool "reset"`},
		{"admin", "", ferrule.CallTool, "reset", "", "", ""},
	} {
		for _, via := range []string{"", "north"} {
			served := 0
			var l ledger
			handle := pipeline.New(pipeline.Parts{
				Config: pipeline.DefaultConfig(), Journal: &l, Policy: rules(ferrule.Permit, "everything"), Log: slog.New(slog.DiscardHandler),
				Fleet: testFleet{oneBoard{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
					served++
					return &ferrule.Result{Value: json.RawMessage("{}")}, nil
				}},
			}).Handle
			who := robby
			who.Auth, who.Devices = ferrule.AuthToken, test.devices
			if err := who.Scopes.UnmarshalText([]byte(test.scopes)); err != nil {
				t.Fatal(err)
			}
			call := &ferrule.Call{Principal: who, Via: via, Device: "robot", Operation: test.op, Tool: test.tool, Args: json.RawMessage(test.args), Verdict: ferrule.Verdict{Ruling: ferrule.Permit}}
			_, err := handle(t.Context(), call)
			if test.code == "" {
				if err != nil || served != 1 {
					t.Errorf("%+v via %q: %v", test, via, err)
				}
				continue
			}
			if err == nil || served != 0 {
				t.Errorf("%+v via %q: served", test, via)
				continue
			}
			e := ferrule.AsError(err)
			if e.Code != test.code || !strings.Contains(e.Message, test.message) || e.MayHaveRun() || e.Hint == "" {
				t.Errorf("%+v via %q: %s %s, hint %s", test, via, e.Code, e.Message, e.Hint)
			}
			if len(l.entries) != 1 || !strings.HasSuffix(l.entries[0], " "+string(test.code)) {
				t.Errorf("%+v via %q: the journal has %q", test, via, l.entries)
			}
		}
	}
}

// TestScopeHints checks that each caller learns how it can get what it lacks.
func TestScopeHints(t *testing.T) {
	for auth, want := range map[ferrule.Auth]string{
		ferrule.AuthToken: "`ferrule token", ferrule.AuthOAuth: "log in again", ferrule.AuthIssuer: "log in again", ferrule.AuthLogin: "`ferrule people`",
	} {
		who := ferrule.Principal{Role: ferrule.Agent, Name: "claude", Auth: auth, Scopes: ferrule.LimitTo(ferrule.ScopeRead)}
		_, err := build(&ledger{}, new(counter).handle)(t.Context(), &ferrule.Call{Principal: who, Device: "robot", Tool: "move", Args: json.RawMessage(`{"note":"x"}`)})
		if err == nil || !strings.Contains(ferrule.AsError(err).Hint, want) {
			t.Errorf("%s: %v", auth, err)
		}
	}
}

// TestScopesOfPeople checks what people who log in may do: a role is a ceiling for them, too.
func TestScopesOfPeople(t *testing.T) {
	for _, test := range []struct {
		scopes ferrule.Scopes
		tool   string
		want   string // the scope that is missing
	}{
		{ferrule.ScopeRead, "look", ""}, {ferrule.ScopeRead, "move", "change"}, {ferrule.ScopeRead, "reset", "admin"},
		{ferrule.ScopeEndanger, "move", ""}, {ferrule.ScopeEndanger, "reset", "admin"}, {ferrule.ScopeAdmin, "reset", ""},
	} {
		who := ferrule.Principal{Role: ferrule.Person, Name: "maria", Auth: ferrule.AuthLogin, Scopes: ferrule.LimitTo(test.scopes)}
		call := &ferrule.Call{Principal: who, Device: "robot", Tool: test.tool}
		if test.tool == "move" {
			call.Args = json.RawMessage(`{"note":"x"}`)
		}
		_, err := build(&ledger{}, new(counter).handle)(t.Context(), call)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), "needs the scope "+test.want+", and person:maria has only") {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
