package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// TestRevokedWhileWaiting: an approval does not let a call through whose caller was locked out
// meanwhile, whether it is a task, or that of a watch.
func TestRevokedWhileWaiting(t *testing.T) {
	for _, by := range []string{"call", "watch"} {
		t.Run(by, func(t *testing.T) {
			p := newPlant(t)
			failed := make(chan error, 1)
			if by == "watch" {
				w := p.set("door", "open", nil)
				p.level(95)
				p.outcome(w.ID, func(o *watch.Outcome) bool { return o.Waiting })
			} else {
				go func() {
					_, err := p.handleLater(t.Context(), &ferrule.Call{Principal: p.claude, Device: "door", Tool: "open"})
					failed <- err
				}()
			}
			id := p.waits()
			if _, err := p.Tokens.Revoke(owner, "claude"); err != nil {
				t.Fatal(err)
			}
			p.approveRevoked(id)
			if by == "watch" {
				wait.For(t, "the outcome of the watch", func() bool {
					all := p.Watches.List(owner)
					return len(all) == 1 && all[0].Outcome != nil && all[0].Outcome.Code == ferrule.Denied
				})
			} else if err := <-failed; err == nil || ferrule.AsError(err).Code != ferrule.Denied || !strings.Contains(err.Error(), "revoked") {
				t.Errorf("the call failed with %v", err)
			}
			if n := p.moved["door"].Load(); n != 0 {
				t.Errorf("the door moved %d times", n)
			}
		})
	}
}

// TestWatchKeepsNoSecrets: the value of a secret argument appears nowhere but at the device, so
// a watch cannot have it.
func TestWatchKeepsNoSecrets(t *testing.T) {
	p := newPlant(t)
	m := &ferrule.Manifest{Model: "lock", Tools: []ferrule.Tool{{Name: "unlock", Effect: ferrule.Changes, Secrets: []string{"pin"}}}}
	kind, err := m.Kind()
	if err != nil {
		t.Fatal(err)
	}
	p.Fleet.Put(&ferrule.Device{ID: "lock", Kind: kind, Accepted: kind, Model: "lock", State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted, Node: p.node()}, m,
		func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil })
	above := 90.0
	set := func(args map[string]any) error {
		_, err := callOwn[watch.Status](t.Context(), p.Gateway, p.claude, builtin.WatchTool, builtin.WatchInput{
			Name: "w", When: &condition.Condition{Device: "tank", Signal: "level", Above: &above}, Call: &builtin.WatchCall{Device: "lock", Tool: "unlock", Args: args},
		})
		return err
	}
	if err := set(map[string]any{"pin": "4711"}); err == nil || ferrule.AsError(err).Code != ferrule.Denied || strings.Contains(err.Error(), "4711") {
		t.Errorf("set a watch with a secret: %v", err)
	}
	if err := set(map[string]any{"door": 1}); err != nil {
		t.Error(err)
	}
	text, err := json.Marshal(p.Watches.List(owner))
	if err != nil || strings.Contains(string(text), "4711") {
		t.Errorf("watches %s, %v", text, err)
	}
}

// TestWatchOfOtherLogin: a watch has no more rights than the login that set it, although the
// same person gave the same program another login with more.
func TestWatchOfOtherLogin(t *testing.T) {
	who := ferrule.Principal{Role: ferrule.Agent, Name: "oauth:maria/claude", Auth: ferrule.AuthOAuth, User: "maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange), Devices: "lamp"}
	login := func(devices []string, scopes ...string) ferrule.Token {
		return ferrule.Token{Name: "login-1", Scopes: scopes, Devices: devices, Created: time.Now().Add(-time.Hour), Login: &ferrule.TokenLogin{Agent: "agent:oauth:maria/claude"}}
	}
	w := &watch.Watch{Owner: who, Node: "one", Created: time.Now()}
	for name, c := range map[string]struct {
		all []ferrule.Token
		ok  bool
	}{
		"own":             {[]ferrule.Token{login([]string{"lamp"}, "change")}, true},
		"more scopes":     {[]ferrule.Token{login([]string{"lamp"}, "endanger")}, true},
		"all devices":     {[]ferrule.Token{login(nil, "endanger")}, false},
		"one of two":      {[]ferrule.Token{login(nil, "endanger"), login([]string{"lamp"}, "change")}, true},
		"one has expired": {[]ferrule.Token{{Name: "login-2", Expired: true, Devices: []string{"lamp"}, Login: &ferrule.TokenLogin{Agent: "agent:oauth:maria/claude"}}, login([]string{"lamp"}, "change")}, true},
	} {
		got, err := currentRights(w, "one", c.all)
		if (err == "") != c.ok || c.ok && (got.Devices != "lamp" || got.Scopes != who.Scopes) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
