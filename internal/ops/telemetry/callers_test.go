package telemetry_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestCallers checks that callers are counted apart, and that agents which invent names
// neither make more than a few series nor take the place of others.
func TestCallers(t *testing.T) {
	o := everything(t)
	handle := newPipeline(o.Meters(), answer)
	call := func(who ferrule.Principal) {
		handle(t.Context(), &ferrule.Call{Principal: who, Device: "robot", Tool: "look"})
	}
	for i := range 1000 {
		call(ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprintf("local/agent-%d", i), Auth: ferrule.AuthStdio, User: "anna"})
		call(ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprintf("ben/local/agent-%d", i), Auth: ferrule.AuthStdio, User: "ben"})
	}
	call(robby)
	limited := robby
	limited.Scopes, limited.Devices, limited.Groups = ferrule.LimitTo(ferrule.ScopeRead), "lamp-*", "viewer"
	call(limited)                                                                                              // the same caller with another token
	call(ferrule.Principal{Role: ferrule.Agent, Name: "local/agent-0", Auth: ferrule.AuthStdio, User: "carl"}) // of another node
	call(ferrule.Principal{Role: ferrule.Agent, Name: "a\x01", Auth: "magic"})
	call(ferrule.Principal{Role: ferrule.Agent, Name: "a\x02", Auth: "magic"})
	call(ferrule.Principal{Role: ferrule.Gateway, Name: "poller"})
	text, _ := fetch(t, o)
	has(t, text,
		`ferrule_caller_calls_total{auth="stdio",caller="agent:local/agent-0"} 2`,
		`ferrule_caller_calls_total{auth="stdio",caller="agent:ben/local/agent-15"} 1`,
		`ferrule_caller_calls_total{auth="stdio",caller="agent:local"} 984`,
		`ferrule_caller_calls_total{auth="stdio",caller="agent:ben/local"} 984`,
		`ferrule_caller_calls_total{auth="token",caller="agent:robby"} 2`,
	)
	if n := strings.Count(text, "\nferrule_caller_calls_total{"); n > 40 || strings.Contains(text, "poller\"") {
		t.Errorf("%d series", n)
	}
	for i := range 1000 {
		call(ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprint("token-", i), Auth: ferrule.AuthToken})
	}
	text, _ = fetch(t, o)
	if n := strings.Count(text, "\nferrule_caller_calls_total{"); n > 260 || !strings.Contains(text, `{auth="other",caller="other"} `) {
		t.Errorf("%d series", n)
	}
}
