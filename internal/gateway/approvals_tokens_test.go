package gateway

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// waits waits for the only request, and returns its ID.
func (p *plant) waits() (id string) {
	p.t.Helper()
	wait.For(p.t, "a request", func() bool {
		all := p.Approvals.List()
		if len(all) == 1 && all[0].Calls > 0 {
			id = all[0].ID
		}
		return id != ""
	})
	return id
}

// approveRevoked checks that a request of a token that was revoked cannot be approved, and
// that the person is told.
func (p *plant) approveRevoked(id string) {
	p.t.Helper()
	_, err := p.Approvals.Answer(owner, id, approval.Answer{Allow: true})
	if err == nil || ferrule.AsError(err).Code != ferrule.Denied || !strings.Contains(err.Error(), id+" has ended: the token of agent:claude was revoked; your answer changed nothing") {
		p.t.Errorf("approving a request of a revoked token: %v", err)
	}
}

// opens calls the guarded tool as a caller that leaves when cancel is called.
func (p *plant) opens(who ferrule.Principal) (done <-chan error, cancel func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.handleLater(ctx, &ferrule.Call{Principal: who, Device: "door", Tool: "open"})
		ended <- err
	}()
	return ended, cancel
}

// as returns the caller with a secret.
func (p *plant) as(secret string) ferrule.Principal {
	p.t.Helper()
	c, err := p.verifier()(p.t.Context(), secret, identity.Request{Time: time.Now()})
	if err != nil {
		p.t.Fatal(err)
	}
	return c.Who
}

// again revokes the token of claude and adds another one of that name.
func (p *plant) again() ferrule.Principal {
	p.t.Helper()
	if _, err := (managed{p.Gateway}).Revoke(owner, builtin.RevokeTokenInput{Name: "claude"}); err != nil {
		p.t.Fatal(err)
	}
	return p.added()
}

func (p *plant) added() ferrule.Principal {
	p.t.Helper()
	out, err := managed{p.Gateway}.Add(owner, builtin.AddTokenInput{Name: "claude"})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.as(out.Secret)
}

// asked checks that a call is not sent before a person has approved it.
func (p *plant) asked(who ferrule.Principal, before string) {
	p.t.Helper()
	done, cancel := p.opens(who)
	defer cancel()
	wait.For(p.t, "a request, or the call has ended", func() bool {
		all := p.Approvals.List()
		return len(done) == 1 || len(all) == 1 && all[0].Calls == 1
	})
	if all := p.Approvals.List(); len(all) != 1 || all[0].ID == before {
		p.t.Errorf("the call does not make a request of its own: %+v", all)
	}
	cancel()
	if err := <-done; err == nil || ferrule.AsError(err).Code != ferrule.Cancelled || p.moved["door"].Load() != 0 {
		p.t.Errorf("the door moved %d times, %v", p.moved["door"].Load(), err)
	}
}

// TestApprovalOfAnotherToken: a token does not use the approval that a revoked token of the
// same name got, or waits for.
func TestApprovalOfAnotherToken(t *testing.T) {
	for _, allowed := range []string{"before", "while revoked", "after", "for a time"} {
		t.Run("allowed "+allowed, func(t *testing.T) {
			p := newPlant(t)
			done, cancel := p.opens(p.as(p.secret))
			id := p.waits()
			cancel()
			<-done
			switch allowed {
			case "before", "for a time":
				answer := approval.Answer{Allow: true}
				if allowed == "for a time" {
					answer.For = time.Hour
				}
				if _, err := p.Approvals.Answer(owner, id, answer); err != nil {
					t.Fatal(err)
				}
				p.asked(p.again(), id)
			case "while revoked":
				if _, err := (managed{p.Gateway}).Revoke(owner, builtin.RevokeTokenInput{Name: "claude"}); err != nil {
					t.Fatal(err)
				}
				p.approveRevoked(id)
				p.asked(p.added(), id)
			default:
				who := p.again()
				p.approveRevoked(id)
				p.asked(who, id)
			}
		})
	}
}

// TestApprovalOfTask: a call that outlives its request, such as a task, is not sent for a
// token that was revoked, although there is another one of the same name.
func TestApprovalOfTask(t *testing.T) {
	p := newPlant(t)
	done, cancel := p.opens(p.as(p.secret))
	defer cancel()
	id := p.waits()
	p.again()
	p.approveRevoked(id)
	if err := <-done; err == nil || ferrule.AsError(err).Code != ferrule.Denied || p.moved["door"].Load() != 0 {
		t.Errorf("the door moved %d times, %v", p.moved["door"].Load(), err)
	}
	who := p.claude
	if why := p.lockedOut(&ferrule.Call{Principal: who}); why == "" {
		t.Error("the revoked token is let in")
	}
	who.TokenID = managed{p.Gateway}.List()[0].ID
	if why := p.lockedOut(&ferrule.Call{Principal: who}); why != "" {
		t.Errorf("the new token: %s", why)
	}
}

// TestApprovalOfRotatedToken: a rotated token is the same token, so it uses its approval.
func TestApprovalOfRotatedToken(t *testing.T) {
	p := newPlant(t)
	done, cancel := p.opens(p.as(p.secret))
	id := p.waits()
	cancel()
	<-done
	if _, err := p.Approvals.Answer(owner, id, approval.Answer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	out, err := managed{p.Gateway}.Rotate(owner, builtin.RotateTokenInput{Name: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	done, cancel = p.opens(p.as(out.Secret))
	defer cancel()
	if err := <-done; err != nil || p.moved["door"].Load() != 1 {
		t.Errorf("the door moved %d times, %v", p.moved["door"].Load(), err)
	}
}

// TestApprovalOfConfiguredToken: approvals for a token of the configuration end when it is
// removed or has another secret, and another token of its name does not use them.
func TestApprovalOfConfiguredToken(t *testing.T) {
	const one, two = "one-one-one-one-one", "two-two-two-two-two"
	for name, next := range map[string]string{"removed": "", "another secret": two} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t)
			reload := func(secret string) {
				t.Helper()
				p.parts.Load = func() (config.Config, error) {
					cfg := p.parts.Config
					if secret != "" {
						cfg.Auth.Tokens = []config.Token{{Name: "claude-ci", Token: ferrule.Secret(secret)}}
					}
					return cfg, nil
				}
				if _, err := p.Reload(); err != nil {
					t.Fatal(err)
				}
			}
			allowed := func() string {
				t.Helper()
				done, cancel := p.opens(p.as(one))
				id := p.waits()
				cancel()
				<-done
				if _, err := p.Approvals.Answer(owner, id, approval.Answer{Allow: true}); err != nil {
					t.Fatal(err)
				}
				return id
			}
			reload(one)
			allowed()
			reload(one)
			done, cancel := p.opens(p.as(one))
			defer cancel()
			if err := <-done; err != nil || p.moved["door"].Load() != 1 {
				t.Errorf("the same token: the door moved %d times, %v", p.moved["door"].Load(), err)
			}
			p.moved["door"].Store(0)
			id := allowed()
			reload(next)
			wait.For(t, "the approval has ended", func() bool {
				_, err := p.Approvals.Answer(owner, id, approval.Answer{})
				return err != nil && strings.Contains(err.Error(), "the token of agent:claude-ci was revoked")
			})
			reload(two)
			p.asked(p.as(two), id)
		})
	}
}

// TestRevokedElsewhere: a node does not end what it knows nothing about, and nobody uses an
// approval of an unknown token.
func TestRevokedElsewhere(t *testing.T) {
	p := newPlant(t)
	if _, err := p.People.Add(owner, "ben", ferrule.RoleOperator); err != nil {
		t.Fatal(err)
	}
	ben := ferrule.RoleOperator.LoggedIn("ben")
	ben.TokenID = p.People.List()[0].LoginID
	token := func(name, id string) ferrule.Principal {
		return ferrule.Principal{Role: ferrule.Agent, Name: name, Auth: ferrule.AuthToken, TokenID: id}
	}
	login := func(id string) ferrule.Principal {
		return ferrule.Principal{Role: ferrule.Agent, Name: "oauth:ben/x", Auth: ferrule.AuthOAuth, TokenID: id}
	}
	check := func(what string, who ferrule.Principal, via, want string) {
		t.Helper()
		if got := p.revoked(who, via); got != want {
			t.Errorf("%s: %q; want %q", what, got, want)
		}
	}
	check("a token", p.claude, "", "")
	check("a token of another node", p.claude, "b", "")
	check("an unknown token", token("x", "1"), "", "the token of agent:x was revoked")
	check("an unknown token of another node", token("x", "1"), "b", "")
	check("an older token of the name", token("claude", "1"), "b", "the token of agent:claude was revoked")
	check("an unknown configured token", token("x", "config-1"), "", "the token of agent:x was revoked")
	check("a configured token of another node", token("x", "config-1"), "b", "")
	check("a token of an older version", token("claude", ""), "", "it is not known which token or login of agent:claude it belongs to")
	check("a token of an older version of another node", token("claude", ""), "b", "it is not known which token or login of agent:claude it belongs to")
	check("an unknown login", login("grant-1"), "", "the login of agent:oauth:ben/x was revoked")
	check("an unknown login of another node", login("grant-1"), "b", "")
	check("a login of an older version", login(""), "", "it is not known which token or login of agent:oauth:ben/x it belongs to")
	check("a program on this machine", ferrule.Principal{Role: ferrule.Agent, Name: "local/x", Auth: ferrule.AuthLoopback}, "", "")
	check("a user of this machine", ferrule.Principal{Role: ferrule.Person, Name: "ben", Auth: ferrule.AuthSocket}, "", "")
	check("a person", ben, "", "")
	for what, end := range map[string]func(ferrule.Principal, string) (ferrule.KnownPerson, error){"logged out": p.People.Logout, "removed": p.People.Remove} {
		if _, err := end(owner, "ben"); err != nil {
			t.Fatal(err)
		}
		check("a person who was "+what, ben, "", "the login of person:ben was revoked")
		check("a person who was "+what+", on another node", ben, "b", "the login of person:ben was revoked")
	}
}

// TestApprovalOfOlderVersion: an approval that an older version has stored, without the token,
// ends. No token can use it.
func TestApprovalOfOlderVersion(t *testing.T) {
	p := newPlant(t)
	who := p.claude
	who.TokenID = "" // as older versions stored it
	done, cancel := p.opens(who)
	defer cancel()
	if err := <-done; err == nil || ferrule.AsError(err).Code != ferrule.Denied || !strings.Contains(err.Error(), "it is not known which token or login of agent:claude it belongs to") {
		t.Errorf("a request without a token: %v", err)
	}
	if all := p.Approvals.List(); len(all) != 0 {
		t.Errorf("it waits: %+v", all)
	}
}
